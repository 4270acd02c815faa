"""Incremental snapshots: rows read in rounds beside the stream."""
