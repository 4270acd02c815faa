"""What the topic tables of an engine's batches lack of what their record says: the audit that topics of SQL Server have (`lake.audit`).

A mark is recorded with the batch after whose commit it was made, so a table holds at least what its mark says, also after a crash in
between. What a look has counted since, such as rows that somebody has deleted, is recorded with the next batch of any table (`upkeep`).
A table without a mark gets one with its next batch. Tables that seem right are examined as time allows, those
first that were not for longest: a run records which it has examined with its first batch.
"""

import logging
from dataclasses import replace
from typing import Final

from cdc_assets.connectors.engine.ledger import BatchLedger, BatchState
from cdc_assets.errors import LakeError
from cdc_assets.lake.audit import Examined, Turns, audit
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.topics import TopicTables

log = logging.getLogger(__name__)

_SECONDS: Final = 1.0
"""Time limit in seconds, at the start of a run, for examining tables that seem right."""
RESTORE: Final = "restore it from a copy, or start again in another lake; positions are not guessed"


def audited(
    tables: TopicTables, state: BatchState, seconds: float | None, turns: Turns | None = None
) -> dict[str, Examined]:
    """Tables that were examined, by directory.

    Args:
        tables: the lake's Delta tables.
        seconds: time limit for examining tables that seem right; None examines all of them.
        turns: of somebody who only looks.

    Raises:
        LakeAwayError: the store does not answer.
    """
    return audit(tables, state.marks, state.marks, seconds=seconds, turns=turns)


def lost(found: dict[str, Examined]) -> dict[str, str]:
    """What examined tables have lost, by directory, with the next step."""
    return {
        name: f"The table {name} {result.loss.what}. Next: {RESTORE}."
        for name, result in found.items()
        if result.loss is not None
    }


class BatchAudit:
    """The audit of one run.

    Args:
        tables: the lake's Delta tables.
        ledger: of the batches; claimed before anything is read.
    """

    def __init__(self, tables: TopicTables, ledger: BatchLedger) -> None:
        self._tables, self._ledger = tables, ledger
        self._examined: set[str] = set()
        """Tables that were examined, until that is recorded."""

    def begin(self) -> None:
        """Have marks of later commits continue from those that are recorded, so that they do not forget what is lost."""
        self._tables.expect_recorded(self._ledger.state.marks)

    def check(self) -> None:
        """Check that each table still holds its last batch: one that does not has lost data, and is never treated as new. What else a
        table has lost is reported, until it is restored; later events do not wait for it.

        Raises:
            LakeError: a table was removed or replaced.
        """
        state = self._ledger.state
        for directory, batch_id in state.tables.items():
            if (reached := self._tables.reached(directory)) < batch_id:
                raise LakeError(
                    f"The topic table {directory} must hold batch {batch_id}, and holds "
                    f"{f'no later one than {reached}' if reached >= 0 else 'none'}: it was removed or replaced. "
                    "Next: restore it from a copy, or start again in another lake; positions are never guessed."
                )
        found = audited(self._tables, state, _SECONDS)
        self._examined = set(found)
        self.begin()  # tables that were examined were opened again, and their marks forgotten
        for text in lost(found).values():
            log.error("%s The capture continues without what is lost.", text)

    def marks(self, batch_id: int) -> dict[str, Mark]:
        """What is to be recorded with a batch that is in its tables: what these hold, and which tables were examined."""
        marks = self._tables.fresh_marks()
        self._tables.forget_marks(marks)
        known, examined = {**self._ledger.state.marks, **marks}, self._examined
        self._examined = set()
        return {**marks, **{name: replace(known[name], examined=batch_id) for name in examined}}
