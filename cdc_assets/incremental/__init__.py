"""Incremental snapshots: tables are read in rounds beside the stream."""
