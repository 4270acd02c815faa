"""Catalogue views and procedures of the stand-in."""
