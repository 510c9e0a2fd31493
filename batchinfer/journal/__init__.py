"""The sidecars: record format, group-committed writer, replay, manifest, lock."""
