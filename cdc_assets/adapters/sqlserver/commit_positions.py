"""Positions inside a large transaction at which its change rows can be divided.

Each position is found from the previous one by a seek in the change table's clustered index (commit LSN, command id,
change LSN, operation) and a scan from there: first over the rows with the same command id, then, if these are too few,
over those with a greater one. Each condition is one range of the index, so nothing is sorted. All scans together read each row of
the transaction at most twice, for any distribution of rows over command ids.

Positions are only cut points: rows that are added or cleaned up meanwhile change the sizes of the parts, never the
result.
"""

from collections.abc import Iterator

from cdc_assets.adapters.sqlserver import change_queries
from cdc_assets.adapters.sqlserver.rows import integer, lsn_of
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position

_SAME, _NEXT = " AND [__$command_id] = ? AND [__$seqval] > ?", " AND [__$command_id] > ?"
_LAST_OPERATION = 4


def step_positions(
    session: Session, database: str, instance: str, commit: Lsn, step: int, rows: int
) -> Iterator[Position]:
    """Positions of every `step`-th change row of an instance in a commit; none if its rows have no command id.

    Args:
        session: session of the control plane.
        instance: name of the capture instance.
        commit: commit LSN.
        step: number of rows between positions, at least 1.
        rows: approximate number of rows.
    """

    def row(condition: str, *parameters: object) -> tuple[int | None, Lsn] | None:
        found = session.rows(change_queries.position_in_commit(database, instance, condition), commit.raw, *parameters)
        return None if not found else (_optional(found[0][0]), lsn_of(found[0][1]) or ZERO_LSN)

    position = row("", step - 1) if rows > step else None
    for _ in range(rows // step):
        if position is None:
            return
        command, change = position
        if command is None:
            return
        yield Position(commit, command, change, _LAST_OPERATION)
        position = row(_SAME, command, change.raw, step - 1)
        if position is None:
            passed = integer(
                session.value(change_queries.rows_behind(database, instance), commit.raw, command, change.raw)
            )
            position = row(_NEXT, command, step - 1 - passed)


def _optional(value: object) -> int | None:
    return None if value is None else integer(value)
