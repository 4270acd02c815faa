"""Snapshot modes, key ranges, the consistent point."""
