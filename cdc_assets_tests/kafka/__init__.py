"""A real Kafka broker: events read from its topics."""
