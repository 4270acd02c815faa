"""The real Debezium SQL Server connector as referee of the stand-in and of our events."""
