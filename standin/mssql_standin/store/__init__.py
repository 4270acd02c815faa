"""The SQLite file: tables, indexes, constraints, transactions, locks and counters."""
