"""From rows to events and to JSON text."""
