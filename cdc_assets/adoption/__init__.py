"""The way over from another reader of the change tables: its position, and what it has delivered."""
