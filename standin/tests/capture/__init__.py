"""Change data capture of the stand-in."""
