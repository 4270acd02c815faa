"""System views and catalogue procedures."""
