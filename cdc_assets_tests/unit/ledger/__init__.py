"""Tests of cdc_assets.ledger."""
