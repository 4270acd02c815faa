"""Debezium property names to typed, validated settings."""
