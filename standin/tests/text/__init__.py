"""Tests of reading T-SQL text."""
