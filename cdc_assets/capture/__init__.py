"""One run of a capture: opening, loop and end. `capture.Capture` is what Dagster and the command line call."""
