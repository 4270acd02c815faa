"""The example project."""
