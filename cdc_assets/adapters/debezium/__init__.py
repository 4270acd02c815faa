"""The embedded Debezium engine: a process of its own with a Java machine in it."""
