"""Reading mirrors: the rows now, all versions with their times, the rows as of an LSN.

`current` and `history` together hold each version of each row once: those of `current` are valid until further notice.
While a step is being committed, `history` is a moment ahead: versions that the step has ended are then in both. A reader leaves out of
`history` what steps after that of `current` have ended; a view cannot, and shows it twice for that moment. The LSN that is
published does not tell which these are: it was read before, and `current` may have gone further since. Between the two commits of a
rebuild nobody can tell the versions that belong to `current`: then none are read.
"""

import logging
from collections.abc import Sequence
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import InvalidValueError, LakeError
from cdc_assets.lake.row_shape import CHANGED_AT
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory
from cdc_assets.mirror.files import fitted, read_rows
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.shape import FROM_AT, FROM_LSN, LSN, STEP, TO_LSN
from cdc_assets.mirror.spans import Span, before, span_of

log = logging.getLogger(__name__)

_TRIES = 3
"""Rebuilds that end while a mirror is read; of one that does not, nobody knows whether it lives."""
Listed = tuple[str, Sequence[str], pa.Schema]
"""Directory, files and columns of a table."""


class MirrorReader:
    """Reads one mirror with Arrow.

    Args:
        tables: of the capture's mirrors.
        lsn: LSN that the mirror has published; None if it is not known.
        begin: LSN from which on it is right; empty while no snapshot has read the table's rows.
        spans: LSNs of which it knows nothing.
        gaps: intervals of lost changes that it lacks (`gap.policy=ignore`).
    """

    def __init__(
        self,
        tables: MirrorTables,
        topic: str,
        lsn: str | None = None,
        begin: str = "",
        spans: Sequence[Span] = (),
        gaps: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._tables, self._topic, self._lsn = tables, topic, lsn
        self._begin, self._gaps = begin, gaps
        self._step: int | None = None
        """The newest step when all this was so; None if it is not known."""
        self._spans = (*spans, *((str(Lsn.parse(after).next()), until) for after, until in gaps))

    @classmethod
    def of(cls, tables: MirrorTables, topic: str, state: MirrorState) -> Self:
        """A reader of a mirror with its state (`CaptureMirrors.states`), by which it reports what it does not know."""
        made = cls(tables, topic, state.lsn, state.begin, state.spans, state.gaps)
        made._step = state.step
        return made

    def current(self) -> pa.Table:
        """The rows now.

        Raises:
            LakeError: there is no such mirror.
        """
        return self._read(current_directory(self._topic))

    def versions(self) -> pa.Table:
        """All versions; those that are valid now have no end.

        Raises:
            LakeError: there is no such mirror, or it is being rebuilt at this moment.
        """
        step, now, ended = self._both()
        ended = ended.filter(pc.less_equal(ended[STEP], step))
        names = [FROM_LSN if name == LSN else FROM_AT if name == CHANGED_AT else name for name in now.column_names]
        now, ended = now.rename_columns(names), ended.drop_columns([STEP])
        wider = {
            **{field.name: field.type for field in now.schema},
            **{field.name: field.type for field in ended.schema},
        }
        columns = pa.schema([pa.field(name, kind) for name, kind in wider.items()])
        return pa.concat_tables([fitted(now, columns), fitted(ended, columns)])

    def as_of(self, lsn: Lsn) -> pa.Table:
        """The rows as they were right after a commit; behind a gap that no snapshot has repaired, without what was lost, which is logged.

        Raises:
            InvalidValueError: the mirror has not come that far, or knows nothing of that LSN.
            LakeError: there is no such mirror, or it was rebuilt since its state was read.
        """
        text = str(lsn)
        self._require_known(text)
        rows = self.versions()
        self._require_same()
        goes_on = pc.fill_null(pc.greater(rows[TO_LSN], text), True)
        return rows.filter(pc.and_(pc.less_equal(rows[FROM_LSN], text), goes_on))

    def _require_known(self, text: str) -> None:
        if self._lsn is not None and text > self._lsn:
            raise InvalidValueError(
                "LSN",
                text,
                f"one up to {self._lsn}, which the mirror has reached",
                "run cdc-assets mirror, or wait for it",
            )
        if self._lsn is not None and not self._begin:
            log.warning(
                "No snapshot has read the rows of %s: its mirror has only those that were changed since the capture began. "
                "Next: materialize its snapshot.", self._topic,
            )  # fmt: skip
        if text < self._begin:
            raise InvalidValueError(
                "LSN",
                text,
                f"one from {self._begin} on: before that the mirror does not have all rows",
                "ask for a later one",
            )
        if (found := span_of(text, self._spans)) is not None:
            raise InvalidValueError(
                "LSN",
                text,
                f"one before {found[0]} or from {found[1]} on: between them a snapshot read the rows at different moments, or changes were lost",
                f"ask for {found[1]}, or for {before(found[0])}",
            )
        for after, until in self._gaps:
            if until <= text:
                log.warning(
                    "The mirror of %s lacks the changes in (%s, %s], which were lost: as of %s it has other rows than the server had. "
                    "Next: read the whole table again.", self._topic, after, until, text,
                )  # fmt: skip

    def _require_same(self) -> None:
        """Check that the mirror is the one of which the state was read."""
        if self._step is not None and self._tables.is_rebuilt_since(history_directory(self._topic), self._step):
            raise LakeError(
                f"The mirror of {self._topic} was rebuilt since its state was read (step {self._step}), so it may be right from another LSN on. "
                "Next: read its state again (CaptureMirrors.states), and then the rows; if it says the same step, a run has died before it "
                "recorded the rebuild, which cdc-assets mirror does."
            )

    def _both(self) -> tuple[int, pa.Table, pa.Table]:
        """The step of `current`, its rows, and versions of which those that this step and earlier ones have ended are all there.

        A rebuild replaces all versions, of which then none is of an earlier step, and `current` after that.
        """
        history = history_directory(self._topic)
        for _ in range(_TRIES):
            step, listed = self._listed_at_step()
            now, ended = self._rows(*listed), self._read(history)
            if not self._tables.is_rebuilt_since(history, step):
                return step, now, ended
        raise LakeError(
            f"The mirror of {self._topic} is being rebuilt: {history} has the new versions, and {current_directory(self._topic)} not yet the "
            "rows that belong to them. Next: read it again; if the rebuild has died, cdc-assets mirror ends it."
        )

    def _listed_at_step(self) -> tuple[int, Listed]:
        """The step of `current`, and its files after that step: the next one may be committed while they are listed."""
        directory = current_directory(self._topic)
        while True:
            step, listed = self._tables.reached(directory), self._listed(directory)
            if self._tables.reached(directory) == step:
                return step, listed

    def _listed(self, directory: str) -> Listed:
        schema = self._tables.schema(directory)
        if schema is None:
            raise LakeError(f"There is no mirror {directory}. Next: cdc-assets mirror creates it.")
        return directory, [path for path, _, _ in self._tables.files(directory)], schema

    def _read(self, directory: str) -> pa.Table:
        return self._rows(*self._listed(directory))

    def _rows(self, directory: str, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
        return read_rows(self._tables.location, directory, paths, schema)
