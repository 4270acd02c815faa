"""Spark: sessions, the task runner, and data frames over the lake."""
