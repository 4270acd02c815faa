"""Compiled statements, kept.

A plan is valid for one text, database, catalogue version and set of variable types: these are its key. Plans that hold
something of their session (temporary tables, system views) stay with the session; all others are
shared by all sessions of the engine.
"""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from cdc_assets.standin.catalog import Table
from cdc_assets.standin.contract import Relation
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.queries.frame import Frame

if TYPE_CHECKING:
    from cdc_assets.standin.engine.session import EngineSession

_MOST: Final = 5000
FIRST_TEMPORARY: Final = 1_900_000_000
"""Object ids of temporary tables and table variables, which live on one connection only, lie above."""


class Plan(Protocol):
    """Something compiled."""

    shared: bool
    """Whether other sessions may use it."""


P = TypeVar("P", bound=Plan)


def is_temporary(table: Table) -> bool:
    """Whether the table lives on one connection only."""
    return table.object_id >= FIRST_TEMPORARY


def is_shared(relations: list[Relation]) -> bool:
    """Whether a plan over these relations holds nothing of its session."""
    return all(r.table is not None and r.refresh is None and not is_temporary(r.table) for r in relations)


def planned(session: "EngineSession", frame: Frame, kind: str, text: str, compile_: Callable[[], P]) -> P:
    """The plan for a text, compiled on first use."""
    key: Hashable = (
        kind, text, session.database, session.catalog.version, frame.signature, session.options.identity_insert,
        session.principal,
    )  # fmt: skip
    found = session.engine.plans.get(key)
    if found is None:
        own = (key, session.temporary_version)
        found = session.plans.get(own)
        if found is None:
            found = _compiled(compile_)
            cache, place = (
                (session.engine.plans, key) if found.shared and not session.temporary else (session.plans, own)
            )
            if len(cache) >= _MOST:
                cache.clear()
            cache[place] = found
    return found  # type: ignore[return-value]


def _compiled(compile_: Callable[[], P]) -> P:
    try:
        return compile_()
    except RecursionError as error:
        raise SqlError(191, "Some part of your SQL statement is nested too deeply.", 15) from error
