"""Snapshots: plans, key ranges, locks and rounds."""
