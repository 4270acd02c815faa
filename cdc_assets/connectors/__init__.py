"""Captures of other databases by Debezium's connectors, and of topics in files and Kafka; no capture of SQL Server imports it."""
