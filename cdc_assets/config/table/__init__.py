"""The property table, one module per subject. `cdc_assets.config.properties` joins them."""
