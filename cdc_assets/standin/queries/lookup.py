"""Names written as text: in sp_rename, IDENT_CURRENT, DBCC."""

from typing import TYPE_CHECKING

from cdc_assets.standin.catalog import Table, fold
from cdc_assets.standin.errors import syntax_error
from cdc_assets.standin.text.lexer import Kind, tokenize

if TYPE_CHECKING:
    from cdc_assets.standin.engine.session import EngineSession


def name_parts(text: str) -> tuple[str, ...]:
    """Parts of a possibly quoted, dotted name; an empty text for a part left out (`db..t`)."""
    parts: list[str] = []
    expecting = True
    for token in tokenize(text):
        if token.kind is Kind.SIGN and token.text == ".":
            if expecting:
                parts.append("")
            expecting = True
        elif expecting and token.kind in (Kind.WORD, Kind.NAME, Kind.VARIABLE):
            parts.append(token.value)
            expecting = False
        else:
            raise syntax_error(token.value)
    return tuple(parts)


def table_named(session: "EngineSession", text: str) -> Table | None:
    """The table that a text names, or None."""
    parts = name_parts(text)
    if not parts:
        return None
    if parts[-1].startswith("#"):
        return session.temporary.get(fold(parts[-1]))
    database = session.catalog.database(parts[-3] if len(parts) > 2 and parts[-3] else session.database)
    schema = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
    return database.table(schema, parts[-1]) if database else None
