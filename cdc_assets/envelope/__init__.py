"""Change rows to Debezium events."""
