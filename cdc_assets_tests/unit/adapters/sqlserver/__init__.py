"""The SQL Server adapters without a server: texts, rows, errors."""
