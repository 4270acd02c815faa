"""What is recorded about a capture: windows, the state of each table, requests. The only place where state changes."""
