"""Converts change rows to Debezium events."""
