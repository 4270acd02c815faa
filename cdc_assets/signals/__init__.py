"""Requests to a running capture: what a signal says, what it changes, and how it arrives."""
