"""Adapters to the outside world: one outside library per file."""
