"""Puts parts together with their adapters, for Dagster and for the command line; a module for each, so that none imports what only others need."""
