"""T-SQL queries and expressions to typed SQLite text.

| module | what it does |
|---|---|
| parse, escapes | text to sqlglot trees that keep function names and types |
| scope, columns | what names mean, what a statement used |
| query, combining, ctes, limits, sources, windows | SELECT, set operations, WITH, TOP, FROM, OVER |
| expressions, conditions, constants, operators, patterns, forms | values and conditions |
| coercion, convert, kernels | which type comes out, conversions in text and on values |
| temporal, numbers, textforms, xmltext | the value forms that conversions pass through |
| collation, literals | comparison of texts, values as SQLite text |
| runtime, registry, functions/ | how SQLite reaches Python; the function library |

Known differences from SQL Server, never compared with a real one: the order of punctuation in collations, CHECKSUM of anything but
integers, SERVERPROPERTY returns nvarchar.
"""
