"""Exported metrics."""
