"""Tests of the stand-in's store."""
