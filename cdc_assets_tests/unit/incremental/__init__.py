"""Incremental snapshots."""
