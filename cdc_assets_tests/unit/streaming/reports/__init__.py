"""Tests of the report of a capture."""
