"""Everything Dagster: translator, asset factory, sensors, checks, jobs.

Thin on purpose: an asset's body calls the façade `cdc_assets.run.capture.Capture`
and turns what it reports into events. What is captured, in which order and
why nothing is lost is decided in the domain rooms, which do not know Dagster.
"""
