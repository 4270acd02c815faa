"""Compares mirrors with the tables on the server, and requests READ events where they differ."""
