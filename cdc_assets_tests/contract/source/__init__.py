"""The source's adapters against a SQL Server counterpart."""
