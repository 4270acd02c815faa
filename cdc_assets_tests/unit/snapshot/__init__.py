"""Tests of cdc_assets.snapshot."""
