"""Built-in procedures by name: those of capture, of the system views, and the engine's own."""

from typing import TYPE_CHECKING, Final

from cdc_assets.standin.capture.procedures import PROCEDURES as CAPTURE
from cdc_assets.standin.catalog import fold
from cdc_assets.standin.contract import Parameter, Procedure
from cdc_assets.standin.queries.lookup import name_parts
from cdc_assets.standin.system.procedures import PROCEDURES as SYSTEM

if TYPE_CHECKING:
    from cdc_assets.standin.engine.session import EngineSession

__all__ = ["Procedure", "argument_key", "find"]

_SCHEMAS: Final = frozenset({"", "sys", "dbo", "cdc"})


def argument_key(parameter: Parameter, place: int) -> str:
    """Key of an argument: its folded name without `@`, or its place."""
    return fold(parameter.name.removeprefix("@")) if parameter.name else str(place)


def find(session: "EngineSession", name: str) -> tuple[Procedure, str] | None:
    """The procedure of that name and the database it runs in, or None."""
    from cdc_assets.standin.definitions.rename import OWN

    parts = name_parts(name)
    if not parts or (len(parts) > 1 and fold(parts[-2]) not in _SCHEMAS):
        return None
    bare = fold(parts[-1])
    procedure = OWN.get(bare) or CAPTURE.get(bare) or SYSTEM.get(bare)
    if procedure is None:
        return None
    wanted = parts[-3] if len(parts) > 2 and parts[-3] else session.database
    database = session.catalog.database(wanted)
    if database is not None and session.rights is not None:
        session.rights.require_entry(database)
    return (procedure, database.name) if database else None
