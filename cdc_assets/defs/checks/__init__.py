"""The registry of checks (`overview.checks`) in Dagster: specs and results, the job of checks and its schedule, what runs and sensors show."""
