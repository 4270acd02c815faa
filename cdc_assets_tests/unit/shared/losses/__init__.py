"""Tests of what a lake has lost."""
