"""The composition root: wires the rooms into run, stats, merge, verify; knows all but the cli."""
