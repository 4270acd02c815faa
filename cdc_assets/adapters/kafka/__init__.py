"""Kafka (extra `kafka`), through librdkafka: the broker that publishes, signals, markers and topics as a source."""
