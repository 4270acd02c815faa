"""Dagster definitions: translator, assets, sensors, checks, jobs.

This package is deliberately thin: an asset's body calls the façade `cdc_assets.capture.capture.Capture`
and turns its progress into Dagster events. What is captured, in which order, and
why nothing is lost is decided in the other packages, which do not depend on Dagster.
"""
