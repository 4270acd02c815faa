"""What the lake of a capture holds, read for people: topics, rows by operation, positions."""

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from cdc_assets.capture.losses import audited, is_numbered, refuse_without_manifest
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.lsn import Lsn
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState, TableState

OPERATIONS = {"r": "read", "c": "create", "u": "update", "d": "delete", None: "tombstone"}


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic of a table: its Delta tables (oldest generation first) and the table's state."""

    topic: str
    directories: tuple[str, ...]
    state: TableState


class LakeView:
    """Reads a capture's lake without claiming it.

    Args:
        config: the capture.
    """

    def __init__(self, config: CaptureConfig) -> None:
        self._config = config
        self.location = Location.of(config.lake)
        self.tables = TopicTables.of(config)

    def state(self) -> CaptureState:
        """The manifest's newest state.

        Raises:
            LakeError: it cannot be read, or is gone while there are topics.
        """
        manifest = Manifest(self.tables, self._config.events.topic_prefix)
        state = manifest.read()
        refuse_without_manifest(self.tables, state, manifest.directory, self._config)
        return state

    def losses(self, *, seconds: float | None = None) -> dict[str, str]:
        """What topics of healthy tables lack, by directory; the next run records it.

        Args:
            seconds: for tables that look right; None compares all of them.
        """
        found = audited(self.tables, self.state(), self._config, seconds=seconds)
        known = self.state().next_window  # a run may be at work, and have committed meanwhile
        lost = {name: result.loss.what for name, result in found.items() if result.loss is not None}
        numbered = {
            name: result.mark.window
            for name, result in found.items()
            if result.mark and is_numbered(name, self._config)
        }
        newer = "holds windows that the manifest does not know, which is an older one"
        return lost | {name: newer for name, window in numbered.items() if window >= known}

    def topics(self) -> list[TopicView]:
        """Topics of all tables that the manifest knows, by name."""
        views = [
            TopicView(topic, self._directories(topic), table_state)
            for table, table_state in self.state().tables.items()
            for topic in [topic_name(table, self._config.events)]
        ]
        return sorted(views, key=lambda view: view.topic)

    def _directories(self, topic: str) -> tuple[str, ...]:
        """Generations of a topic; none if Delta cannot read them, which `losses` tells."""
        try:
            return tuple(self.tables.generations(topic))
        except LakeError:
            return ()

    def watermarks(self) -> dict[str, Lsn | None]:
        """Position up to which every healthy table is complete, by database."""
        state = self.state()
        return {name: state.watermark(name) for name in sorted({table.database for table in state.tables})}

    def rows_by_operation(self, view: TopicView) -> dict[str, int]:
        """Number of events by operation; reads one column."""
        counts: Counter[str] = Counter()
        for directory in view.directories:
            column = self._open(directory)[0].to_table(columns={"op": pc.field("value", "op")})["op"]
            for pair in pc.value_counts(column).to_pylist():
                counts[OPERATIONS.get(pair["values"], str(pair["values"]))] += pair["counts"]
        return dict(counts)

    def newest(self, directory: str, count: int) -> pa.Table:
        """The last events of a topic table in position order."""
        dataset, schema = self._open(directory)
        positions = dataset.to_table(columns=["position"])["position"]
        least = None
        if 0 < count < len(positions):
            least = pc.min(positions.take(pc.select_k_unstable(positions, count, [("", "descending")])))
        found = dataset.to_table(filter=None if least is None else pc.field("position") >= least)
        found = found.sort_by("position")
        return found.slice(max(0, found.num_rows - count)).cast(schema)

    def after(self, directory: str, position: str) -> pa.Table:
        """Events behind a position, in position order."""
        dataset, schema = self._open(directory)
        return dataset.to_table(filter=pc.field("position") > position).sort_by("position").cast(schema)

    def _open(self, directory: str) -> tuple[ds.Dataset, pa.Schema]:
        """A topic table's current files, and its structure with the metadata that tells Connect's types.

        Raises:
            LakeError: there is no such table.
        """
        handle = self.tables.open(directory)
        if handle is None:
            raise LakeError(
                f"There is no table {self.location.uri(directory)}. Next: list topics with `cdc-assets status`"
            )
        return handle.to_pyarrow_dataset(), pa.schema(handle.schema().to_arrow())
