"""Unit tests of adoption."""
