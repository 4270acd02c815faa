"""Windows, slices, the streaming loop."""
