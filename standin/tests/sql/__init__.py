"""Tests of the T-SQL compiler on real SQLite."""
