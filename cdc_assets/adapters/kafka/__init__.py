"""Kafka through librdkafka (extra `kafka`): signals, the broker that publishes, topics of a connector as a source."""
