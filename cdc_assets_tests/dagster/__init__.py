"""Definitions, sensors, checks and in-process runs."""
