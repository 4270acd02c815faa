"""Publishes the lake's topics as a connector would have sent them; knows no broker (docs/kafka.md)."""
