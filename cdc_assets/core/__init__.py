"""Values that every room shares; standard library only."""
