"""Configuration: files, values, filters, documentation."""
