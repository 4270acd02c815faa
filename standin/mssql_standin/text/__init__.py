"""T-SQL text: tokens, statements and clauses as they are written. Knows no table and no session."""
