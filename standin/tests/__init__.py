"""Tests, laid out as the rooms of `cdc_assets` are."""
