"""Runs the statements of a batch: control flow, variables, calls, messages and errors."""
