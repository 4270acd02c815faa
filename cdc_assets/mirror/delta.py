"""The Delta tables of mirrors: `<topic>.__current` and `<topic>.__history`, committed once for each step.

A commit carries the application transaction `(<prefix>/mirror, step)`, as those of topics carry their window: a table
that has reached a step is skipped when the step is repeated, and of two writers of one step the second finds it there. It
is made by the one function that removes files (`lake.replacing`): a step whose leaves another program has rewritten meanwhile is
not committed.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from cdc_assets.config.settings import CaptureConfig, LakeSettings
from cdc_assets.envelope.naming import CURRENT, HISTORY
from cdc_assets.errors import LakeConflictError
from cdc_assets.lake.delta_log import log_properties
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.tables import STATISTICS_PROPERTY, DeltaTables, allow_plain_timestamps
from cdc_assets.mirror.leaves import Leaf, leaf_of
from cdc_assets.mirror.shape import COMMENT, comment_of, is_of_source

_RECENT = 20
"""Commits among which that of a step in flight is: nothing else is committed before it is complete, but by other programs."""
REBUILT = "rebuilt"
"""In what a commit says of a step: that it holds all that there is, and nothing is left of the steps before."""


def current_directory(topic: str) -> str:
    """Directory of a table's current rows."""
    return topic + CURRENT


def history_directory(topic: str) -> str:
    """Directory of a table's former rows."""
    return topic + HISTORY


def _step_of(commit: Mapping[str, str]) -> int:
    """The step that a commit says that it is of; -1 if it says none, as those of other programs."""
    text = commit.get("step", "")
    return int(text) if text.isdecimal() else -1


def _skipping(bounded: Sequence[str]) -> dict[str, str]:
    """Properties that say of which columns files tell bounds.

    Without them delta-rs takes those of all others for unknown, and a filter on them finds nothing in its Arrow data set.
    """
    named = {STATISTICS_PROPERTY: ",".join(bounded)} if bounded else {}
    return {"delta.dataSkippingNumIndexedCols": "0", **named}


class MirrorTables:
    """Opens and commits the tables of mirrors.

    Args:
        prefix: topic prefix, part of the application id.
        lake: how long replaced files are kept, and how many commits stay in a table's log.
    """

    def __init__(self, location: Location, prefix: str, lake: LakeSettings) -> None:
        self.location, self._minutes = location, 60 * lake.retention_hours
        self.tables = DeltaTables(location, f"{prefix}/mirror", lake)

    @classmethod
    def of(cls, config: CaptureConfig) -> "MirrorTables":
        """The tables of a capture's mirrors."""
        return cls(Location.of(config.lake), config.events.topic_prefix, config.lake)

    def schema(self, directory: str) -> pa.Schema | None:
        """Columns of a table; None if it does not exist."""
        handle = self.tables.open(directory)
        return None if handle is None else pa.schema(handle.schema().to_arrow())

    def reached(self, directory: str) -> int:
        """The newest step that was committed to a table; -1 if there is none."""
        return self.tables.reached(directory)

    def about(self, directory: str, step: int) -> Mapping[str, str]:
        """What the commit of a step says of it (`fold_step`); nothing if the log no longer has it."""
        handle = self.tables.open(directory)
        commits = [] if handle is None else handle.history(_RECENT)
        return next((commit for commit in commits if commit.get("step") == str(step)), {})

    def is_rebuilt_since(self, directory: str, step: int) -> bool:
        """Whether a step after another one has rebuilt a table, as far as its log reaches back."""
        handle, examined = self.tables.open(directory), 1
        while handle is not None:
            commits = handle.history(examined)
            if any(REBUILT in commit and _step_of(commit) > step for commit in commits):
                return True
            if len(commits) < examined or any(0 <= _step_of(commit) <= step for commit in commits):
                break
            examined *= 4  # steps since then, and commits of other programs
        return False

    def files(self, directory: str) -> list[tuple[str, int, int]]:
        """Path, bytes and rows of each file of a table."""
        handle = self.tables.open(directory)
        if handle is None:
            return []
        found = pa.table(handle.get_add_actions())
        columns = (found[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
        return [(path, size, rows or 0) for path, size, rows in zip(*columns, strict=True)]

    def leaves(self, directory: str) -> list[Leaf] | None:
        """Leaves of a table in order; None if another program has rewritten its files."""
        found = [leaf_of(*file) for file in self.files(directory)]
        known = sorted((leaf for leaf in found if leaf is not None), key=lambda leaf: leaf.bound)
        return known if len(known) == len(found) else None

    def prepare(self, directory: str, schema: pa.Schema, bounded: Sequence[str], *, whole: bool = False) -> None:
        """Have a table with these columns.

        Args:
            schema: columns of the table from now on; added ones must be nullable unless `whole`.
            bounded: columns of whose values each file has the bounds in its statistics.
            whole: whether the next commit replaces all files, and gives the table its columns.

        Raises:
            LakeConflictError: another writer has changed columns or properties at the same moment.
            LakeError: the store refuses.
        """
        try:
            self._ready(directory, schema, bounded, whole=whole)
        except CommitFailedError as error:
            self.tables.forget(directory)
            raise LakeConflictError(
                f"{directory}: another writer changed its columns or properties at the same moment. Next: nothing, the step is repeated."
            ) from error
        except STORE_ERRORS as error:
            self.tables.forget(directory)
            place = self.location.uri(directory)
            raise trouble(f"{place} cannot be written", error, "check the path and its rights") from error

    def _ready(self, directory: str, schema: pa.Schema, bounded: Sequence[str], *, whole: bool) -> DeltaTable:
        """The table, created or with added columns."""
        skipping = _skipping(bounded)
        handle = self.tables.open(directory)
        if handle is None:
            self.location.filesystem(directory)
            DeltaTable.create(
                self.location.uri(directory),
                schema=Schema.from_arrow(schema),
                mode="ignore",
                configuration={**log_properties(self._minutes), **skipping},
                storage_options=self.location.storage_options,
            )
            handle = self.tables.open(directory)
            assert handle is not None  # noqa: S101 - it was created just now
        if skipping.items() - handle.metadata().configuration.items():
            handle.alter.set_table_properties(skipping)
            handle.update_incremental()
        allow_plain_timestamps(handle, schema)
        if not whole:
            known = set(pa.schema(handle.schema().to_arrow()).names)
            if missing := [field.with_nullable(True) for field in schema if field.name not in known]:
                handle.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
                handle.update_incremental()
            self._comment(handle, schema)
        return handle

    @staticmethod
    def _comment(handle: DeltaTable, schema: pa.Schema) -> None:
        """Give columns the comments that the source's newest structure has."""
        known = {field.name: comment_of(field) for field in pa.schema(handle.schema().to_arrow())}
        for field in schema:
            if is_of_source(field) and known[field.name] != comment_of(field):
                handle.alter.set_column_metadata(field.name, {COMMENT: comment_of(field)})
                handle.update_incremental()
