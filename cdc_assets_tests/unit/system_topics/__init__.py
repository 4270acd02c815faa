"""Topics of a capture as a whole."""
