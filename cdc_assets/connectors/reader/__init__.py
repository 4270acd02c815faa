"""Change events that others wrote, to Kafka topics or to files, into the same lake: each once."""
