"""Tests of cdc_assets.lake."""
