"""The lake: one Delta table per topic, the window manifest, and how both are read and kept."""
