"""Bytes to rows: lines, keys, templates, what remains to do."""
