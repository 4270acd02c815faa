"""A step of one mirror: of which table it is, how it is carried out, and what it has done."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from cdc_assets.core.ran_on import NOWHERE, RanOn
from cdc_assets.errors import CdcError
from cdc_assets.lake.events import EventFile
from cdc_assets.lake.pieces import Piece
from cdc_assets.mirror.describe import Description
from cdc_assets.mirror.leaves import Leaf
from cdc_assets.mirror.ledger import PlannedStep
from cdc_assets.mirror.missing_rows import MissingRows
from cdc_assets.mirror.retyped import with_former
from cdc_assets.mirror.shape import Shape
from cdc_assets.mirror.steps import Target


@dataclass(frozen=True)
class MirroredTable:
    """A table whose mirror may have something new.

    Args:
        files: of its topic.
        is_partial: whether it can continue after its target once it is there, in another structure.
        halt: why it goes no further than its target, though its topic does.
        newest: in the structure of which its mirror is rebuilt, if that is a later one.
    """

    topic: str
    description: Description
    target: Target
    files: tuple[EventFile, ...]
    is_partial: bool = False
    halt: CdcError | None = None
    newest: "MirroredTable | None" = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step of one mirror has done.

    Args:
        lsn: commit LSN up to which the mirror is right now.
        events: events that were folded.
        rewritten: files of `current` that were written.
        ended: versions that went to `history`.
        size: bytes that were written.
        rows: rows of `current`.
        leaves: leaves that were rewritten.
        newest: when the newest of the events was committed, if it is known.
        ran_on: where its tasks ran; mirrors that follow together share their jobs.
    """

    topic: str
    step: int
    lsn: str
    events: int = 0
    rewritten: int = 0
    ended: int = 0
    size: int = 0
    rows: int = 0
    leaves: int = 0
    newest: datetime | None = None
    ran_on: RanOn = NOWHERE

    def after(self, earlier: "StepReport") -> "StepReport":
        """This step and an earlier one of the same mirror, as one."""
        return replace(
            self,
            events=earlier.events + self.events,
            rewritten=earlier.rewritten + self.rewritten,
            ended=earlier.ended + self.ended,
            size=earlier.size + self.size,
            leaves=earlier.leaves + self.leaves,
            newest=max((at for at in (earlier.newest, self.newest) if at), default=None),
            ran_on=earlier.ran_on + self.ran_on,
        )


OnStep = Callable[[StepReport], None]


@dataclass
class Work:
    """A step of one table while it is carried out."""

    table: MirroredTable
    planned: PlannedStep
    leaves: list[Leaf]
    absences: list[MissingRows]
    begin: str = ""
    """LSN from which on the mirror is right after the step; empty if there are rows that no snapshot has read up to there."""
    retyped: bool = False
    history: pa.Schema | None = None
    pieces: tuple[Piece, ...] = ()
    loose: frozenset[str] = frozenset()
    """Columns that the source declares NOT NULL and that hold NULLs: of rows older than the column, or than its type."""
    retyped_from: tuple[pa.Field, ...] = ()
    """Columns that get another type, as the table has them."""
    strict: frozenset[str] = frozenset()
    """Columns that are NOT NULL in the table that is committed to."""

    @property
    def folded(self) -> Shape:
        """The shape while events are folded."""
        return with_former(self.table.description.shape, self.retyped_from)

    @property
    def current(self) -> pa.Schema:
        """Columns of `current` after the step."""
        return pa.schema(
            [
                field.with_nullable(field.nullable or field.name in self.loose)
                for field in self.table.description.shape.current
            ]
        )
