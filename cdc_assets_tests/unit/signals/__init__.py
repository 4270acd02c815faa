"""Signals and incremental snapshots."""
