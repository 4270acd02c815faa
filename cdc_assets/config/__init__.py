"""Debezium property names to typed, validated settings.

`load.load_config(path)` reads a file; `build.build_config(texts)` takes properties from elsewhere; `settings` holds the
result's classes, `filters` says which tables and columns they mean, `properties.PROPERTIES` is the table behind it all.
"""
