"""One run of a capture: opening, loop, end."""
