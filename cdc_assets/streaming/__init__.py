"""Windows of the log: planning, slices, tasks and commits."""
