"""Requests to a running capture: content of signals, their effect, and the channels by which they arrive."""
