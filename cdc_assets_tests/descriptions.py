"""Statements about descriptions of tables and columns, which are extended properties on SQL Server."""


def call(table: str, verb: str, value: str = "", column: str = "", name: str = "MS_Description") -> str:
    """The statement that adds, updates or drops a property of a table or of a column."""
    schema, _, bare = table.partition(".")
    text = "" if verb == "drop" else f", @value = N'{value}'"
    of = f", @level2type = N'COLUMN', @level2name = N'{column}'" if column else ""
    return (
        f"EXEC sys.sp_{verb}extendedproperty @name = N'{name}'{text}, @level0type = N'SCHEMA', @level0name = N'{schema}', "
        f"@level1type = N'TABLE', @level1name = N'{bare}'{of}"
    )
