"""Schema history and schema change events."""
