"""What names mean to a session, compiled plans, and SELECT."""
