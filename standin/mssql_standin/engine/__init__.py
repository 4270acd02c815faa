"""The server and its sessions: logins, databases, functions and procedures that look into a session."""
