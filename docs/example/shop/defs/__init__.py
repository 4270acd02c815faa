"""What `dg` loads: one folder per component, and assets in Python."""
