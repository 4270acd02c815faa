"""Debezium's connectors against real servers, through the embedded engine into a lake."""
