"""The embedded Debezium engine, in a separate process with its own JVM."""
