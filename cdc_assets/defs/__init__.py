"""Everything Dagster."""
