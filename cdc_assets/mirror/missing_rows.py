"""Rows that a comparison did not find on the server, and that no event removes: nothing has logged that they went.

The ledger keeps them, each with the mirror's LSN before the server was read, and the newest window that it had read. There they are gone from
the mirror, as if an event said so: events behind it win, also READs of later windows at that LSN, and a mirror that is rebuilt from its topic
takes them at the same place. The topic stays as it is, for its events are those of the log.

*Why a step that is repeated makes the same.* Its plan says how many of them it knows. Those that it takes are identified by their LSNs, and by
which of them a complete step has taken before.
"""

import base64
from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.envelope.reads import first_read
from cdc_assets.lake.row_shape import AT, CHANGED_AT, MISSING, OPERATION, POSITION
from cdc_assets.mirror.natural import cast
from cdc_assets.mirror.shape import OF_KEY, Shape
from cdc_assets.mirror.texts import whole

MISSING_ROW = "a"
"""Operation of an event that says that a row is gone."""
MAX_MISSING = 1000
"""Rows of one mirror that may be kept so: each change of the ledger names them."""


@dataclass(frozen=True, slots=True)
class MissingRows:
    """Rows that are gone.

    Args:
        lsn: commit LSN at which they are.
        at: when they were searched for, in microseconds since 1970.
        rows: number of rows.
        keys: of these, as an Arrow IPC stream in base64.
        taken: whether a complete step has taken them.
        window: number of a window, READs of which and of earlier ones the mirror knew; None for all of the LSN (an earlier version).
    """

    lsn: str
    at: int
    rows: int
    keys: str
    taken: bool = False
    window: int | None = None

    @classmethod
    def of(cls, lsn: str, at: int, keys: pa.Table, window: int | None = None) -> "MissingRows":
        """Rows with these values in the columns of the key."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, keys.schema) as writer:
            writer.write_table(keys)
        return cls(lsn, at, keys.num_rows, base64.b64encode(sink.getvalue()).decode(), window=window)

    def events(self, shape: Shape) -> pa.Table:
        """As events, after all others of their LSN that the mirror knew; none if rows have another key now."""
        keys = self._keys(shape)
        if keys is None:
            return shape.events.empty_table()
        own = {OPERATION: MISSING_ROW, CHANGED_AT: pa.scalar(self.at, AT)} | {
            MISSING + name: False for name in shape.large
        }
        columns = [
            keys[field.name] if field.name in keys else pa.repeat(pa.scalar(own.get(field.name), field.type), self.rows)
            for field in shape.events
        ]
        head = self.lsn if self.window is None else first_read(self.lsn, self.window - 1)
        # events with one position count once
        positions = pa.array([f"{head}~{self.at:020d}/{number:04d}" for number in range(self.rows)], pa.string())
        columns[shape.events.get_field_index(POSITION)] = positions
        return pa.Table.from_arrays(columns, schema=shape.events)

    def _keys(self, shape: Shape) -> dict[str, pa.Array] | None:
        """Values of the key by column; None if rows have another key now.

        A column of the key that a rule hides by now, or hides no longer, has another name, and the same values.
        """
        with pa.ipc.open_stream(base64.b64decode(self.keys)) as reader:
            found = reader.read_all()
        own, recorded = {part.name for part in shape.key}, set(found.column_names)
        names = {
            name: other
            for name in own
            for other in recorded
            if name == other or (own != recorded and _plain(name) == _plain(other))
        }
        if not len(names) == len(set(names.values())) == len(own) == len(recorded):
            return None
        keys = {name: cast(whole(found[other]), shape.events.field(name).type) for name, other in names.items()}
        # of another kind: NULL would be another row
        is_lost = any(keys[name].null_count > found[other].null_count for name, other in names.items())
        return None if is_lost else keys


def _plain(name: str) -> str:
    """Name of a column of the key where no rule hides it."""
    return name.removeprefix(OF_KEY)
