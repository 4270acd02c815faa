"""SQL Server: statements through pyodbc, bulk reads through mssql-python."""
