"""The client of Kafka."""
