"""What pages, checks and commands say of a capture."""
