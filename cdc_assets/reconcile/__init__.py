"""Compares mirrors with the tables on the server, and asks for READ events where they differ."""
