"""Folds over events and records: tally, summary, the merged results."""
