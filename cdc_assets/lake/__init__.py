"""The lake: one Delta table per topic; reading, writing and maintenance of these tables."""
