"""Random histories of a server, its captures and their weather, held against the law of exactly once."""
