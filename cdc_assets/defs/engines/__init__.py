"""Captures of other databases in Dagster: Debezium's own connectors, run embedded, with the same kinds of assets."""
