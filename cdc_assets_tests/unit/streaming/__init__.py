"""Tests of cdc_assets.streaming."""
