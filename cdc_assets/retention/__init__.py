"""Drops events from topics that are old and that every reader of this capture has."""
