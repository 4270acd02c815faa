"""Single message transforms: what Debezium's and Kafka Connect's classes make of records, for whole columns at once."""
