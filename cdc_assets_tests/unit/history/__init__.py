"""Tests of cdc_assets.history."""
