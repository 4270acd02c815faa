"""SQL Server types to Connect types and Arrow kernels."""
