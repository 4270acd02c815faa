"""The engine of the stand-in through its sessions, on real SQLite."""
