"""What a run's activities share."""
