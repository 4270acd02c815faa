"""One run of a capture: open, loop, leave; and the view from outside."""
