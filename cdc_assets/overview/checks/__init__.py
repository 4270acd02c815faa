"""Conditions under which a capture and its tables can be trusted: one registry of checks (`registry`), for both kinds of capture.

An entry (`check.Check`) is all that is to be known of a check: what Dagster shows and evaluates, what runs and sensors report, what `status` says,
pages of the runbook, alerts and the table in the documents are made from it. To add one: a function and an entry in `sqlserver` or
`connector`, and the table in the documents, which a test compares with the registry.
"""
