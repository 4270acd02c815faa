"""Built-in procedures by name: those of capture, of the system views, and the engine's own."""

from typing import Final

from mssql_standin.batches.ports import BatchSession
from mssql_standin.capture.procedures import PROCEDURES as CAPTURE
from mssql_standin.catalog import fold
from mssql_standin.contract import Procedure
from mssql_standin.definitions.properties import PROCEDURES as PROPERTIES
from mssql_standin.definitions.rename import OWN
from mssql_standin.system.procedures import PROCEDURES as SYSTEM
from mssql_standin.text.clauses import name_parts

_SCHEMAS: Final = frozenset({"", "sys", "dbo", "cdc"})


def find(session: BatchSession, name: str) -> tuple[Procedure, str] | None:
    """The procedure of that name and the database it runs in, or None."""
    parts = name_parts(name)
    if not parts or (len(parts) > 1 and fold(parts[-2]) not in _SCHEMAS):
        return None
    bare = fold(parts[-1])
    procedure = OWN.get(bare) or PROPERTIES.get(bare) or CAPTURE.get(bare) or SYSTEM.get(bare)
    if procedure is None:
        return None
    wanted = parts[-3] if len(parts) > 2 and parts[-3] else session.database
    database = session.catalog.database(wanted)
    if database is not None and session.rights is not None:
        session.rights.require_entry(database)
    return (procedure, database.name) if database else None
