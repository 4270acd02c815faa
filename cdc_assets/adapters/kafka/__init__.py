"""Kafka (extra `kafka`): the broker that publishes, through aiokafka; signals, markers and topics as a source, through librdkafka."""
