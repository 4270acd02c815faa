"""Debezium property names to typed, validated settings.

`load.load_config(path)` reads a file; `build.build_config(texts)` takes properties from elsewhere; `settings` holds the
result's classes, `filters` selects tables and columns, `properties.PROPERTIES` is the table of all properties.
"""
