"""The configuration: its shape, where it is loaded from, presets, secrets."""
