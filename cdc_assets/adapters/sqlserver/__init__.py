"""SQL Server: statements by pyodbc, rows in bulk by mssql-python."""
