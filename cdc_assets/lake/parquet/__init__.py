"""Parquet files in which columns that repeat are not written row by row.

`file` puts a file together, `runs` finds the columns that repeat, `pages` writes their column chunks, `metadata` names the fields of
Parquet's specification, and `thrift` is how they are written. Reasons: docs/decisions/parquet.md.
"""
