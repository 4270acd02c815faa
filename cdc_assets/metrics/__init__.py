"""Metrics of one capture, and the ways in which they are exported."""
