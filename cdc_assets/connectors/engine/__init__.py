"""Events of Debezium's own connectors, run in an embedded engine, into the same lake: each once."""
