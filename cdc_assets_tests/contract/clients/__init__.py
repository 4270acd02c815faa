"""Unmodified drivers against a SQL Server counterpart, one module for each thing they must be able to do."""
