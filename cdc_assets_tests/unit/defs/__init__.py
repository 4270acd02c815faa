"""Parts of the integration into Dagster that need no run."""
