"""Topic tables in Delta: layout, commits, reading back."""
