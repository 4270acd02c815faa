"""Compiled statements, kept.

A plan is valid for one text, database, catalogue version and set of variable types: these are its key. Plans that hold
something of their session (temporary tables, system views) stay with the session; all others are
shared by all sessions of the engine.
"""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from mssql_standin.contract import Relation
from mssql_standin.errors import SqlError
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.ports import Plan, QuerySession
from mssql_standin.store.temporary import is_temporary

_MOST: Final = 5000


P = TypeVar("P", bound=Plan)


def is_shared(relations: list[Relation]) -> bool:
    """Whether a plan over these relations holds nothing of its session."""
    return all(r.table is not None and r.refresh is None and not is_temporary(r.table) for r in relations)


def planned(session: QuerySession, frame: Frame, kind: str, text: str, compile_: Callable[[], P]) -> P:
    """The plan for a text, compiled on first use."""
    key: Hashable = (
        kind, text, session.database, session.catalog.version, frame.signature, session.principal,
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
    return found  # type: ignore[return-value]  # the plan of this key


def _compiled(compile_: Callable[[], P]) -> P:
    try:
        return compile_()
    except RecursionError as error:
        raise SqlError(191, "Some part of your SQL statement is nested too deeply.", 15) from error
