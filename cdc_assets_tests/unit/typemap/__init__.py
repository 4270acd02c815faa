"""Column types, wire forms and value kernels."""
