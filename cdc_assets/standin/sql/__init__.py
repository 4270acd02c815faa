"""T-SQL text to typed SQLite text: lexer, compiler, functions, conversions."""
