"""TDS: packets, login, tokens, values, requests."""
