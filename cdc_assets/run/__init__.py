"""One run of a capture: opening, loop and end; and the overview of a capture from outside."""
