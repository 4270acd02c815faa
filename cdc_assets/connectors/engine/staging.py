"""Files of one batch: events that an engine sent, written to the topic tables' folders and not committed yet.

An unfinished snapshot cannot be resumed by any connector, so its chunks stay in one batch, however many files they
take; memory holds a row group for each topic. The batch's files are not part of any table until the ledger names them.
"""

import json
from contextlib import ExitStack
from uuid import uuid4

import numpy as np
import pyarrow as pa

from cdc_assets.connectors.engine.boundaries import Boundary, last_boundary
from cdc_assets.connectors.engine.feed import Chunk, Lines
from cdc_assets.connectors.engine.ledger import Batch
from cdc_assets.connectors.engine.positions import LogPosition, Repetitions, last_position
from cdc_assets.connectors.engine.schemas import read_lines, topic_schema
from cdc_assets.core.steps import step
from cdc_assets.envelope.plan import POSITION, WINDOW
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.topics import TopicTables

KEYLESS = pa.field("key", pa.string())
"""The key of tables that have none, as everywhere in the lake; the TRUNCATE of a table with a key has no field for it."""
HISTORY = pa.schema([POSITION, pa.field("record", pa.string()), WINDOW])
"""A connector's schema history, in its own form."""


def history_directory(prefix: str) -> str:
    """Directory of a connector's schema history."""
    return f"{prefix}.__engine_history"


class Staging:
    """Writes the chunks of one batch.

    Args:
        tables: the lake's Delta tables.
        prefix: topic prefix.
        batch_id: number of the batch.
        repetitions: of this run of the engine.
        schemas: schemas of the structures that this run of the engine has sent; kept from batch to batch.
    """

    def __init__(
        self,
        tables: TopicTables,
        prefix: str,
        batch_id: int,
        repetitions: Repetitions,
        schemas: dict[int, pa.Schema],
    ) -> None:
        self._tables, self._prefix, self._batch_id, self._schemas = tables, prefix, batch_id, schemas
        self._attempt = uuid4().hex[:8]
        self._writers: dict[int, tuple[str, TopicWriter]] = {}
        self._stack = ExitStack()
        self._offsets: dict[str, tuple[object, object]] = {}
        self._added_history: list[str] = []
        self._position: LogPosition | None = None
        self._boundary: Boundary | None = None
        self._repetitions = repetitions
        self.rows = self.next_number = self.chunk = 0
        self.unfinished = self.anew = False

    def add(self, chunk: Chunk) -> None:
        """Write a chunk's events.

        Raises:
            EngineError: events do not fit their schemas.
            LakeError, LakeFullError: the lake cannot be written.
        """
        schemas = [self._schema(lines) for lines in chunk.lines]
        found = [
            read_lines(schema, lines.data, lines.longest) if lines.table is None else lines.table
            for schema, lines in zip(schemas, chunk.lines, strict=True)
        ]
        new = self._repetitions.drop(found)
        self._position = last_position(new) or self._position
        self._boundary = last_boundary(new) or self._boundary
        for schema, lines, table in zip(schemas, chunk.lines, new, strict=True):
            self._write(lines, schema, table)
        self._added_history += chunk.history
        self._offsets |= {
            json.dumps(partition, sort_keys=True): (partition, at) for partition, at in chunk.offsets if at
        }
        self.next_number += chunk.rows
        self.chunk, self.unfinished = chunk.number, chunk.unfinished
        self.anew |= chunk.anew

    def _schema(self, lines: Lines) -> pa.Schema:
        if lines.structure not in self._schemas:
            self._schemas[lines.structure] = topic_schema(lines.key, lines.value)
        schema = self._schemas[lines.structure]
        if lines.key is None and "key" not in schema.names and not self._has_key(lines.topic):
            self._schemas[lines.structure] = schema.insert(1, KEYLESS)
        return self._schemas[lines.structure]

    def _has_key(self, topic: str) -> bool:
        """Whether a topic's events have keys, though one that is written now has none."""
        handles = [self._tables.open(directory) for directory in self._tables.generations(topic)]
        schemas = [pa.schema(handle.schema().to_arrow()) for handle in handles if handle is not None]
        return any("key" in schema.names and schema.field("key").type != KEYLESS.type for schema in schemas)

    def _write(self, lines: Lines, schema: pa.Schema, table: pa.Table) -> None:
        if not table.num_rows:
            return
        numbers = table.column("n").to_numpy() + self.next_number
        positions = pa.array([f"{self._batch_id:016x}/{number:012x}" for number in numbers.tolist()], pa.string())
        windows = pa.array(np.full(table.num_rows, self._batch_id, dtype=np.int64))
        columns = {name: table.column(name) for name in table.column_names}
        columns |= {"position": positions, "window_id": windows}
        missing = {field.name: pa.nulls(table.num_rows, field.type) for field in schema if field.name not in columns}
        batch = pa.Table.from_arrays([(columns | missing)[field.name] for field in schema], schema=schema)
        self._writer(lines.topic, lines.structure, schema).write(batch.combine_chunks().to_batches())
        self.rows += table.num_rows

    def _writer(self, topic: str, number: int, schema: pa.Schema) -> TopicWriter:
        """The writer of a structure; its table is created or adapted first."""
        if number not in self._writers:
            directory = self._tables.prepare(topic, schema)
            writer = TopicWriter(self._tables.location, directory, schema, self._batch_id, self._attempt)
            self._writers[number] = directory, self._stack.enter_context(writer)
        return self._writers[number][1]

    def close(self) -> Batch:
        """Finish the files.

        Raises:
            LakeError, LakeFullError: the lake cannot be written.
        """
        files: dict[str, list[DataFile]] = {}
        if self._added_history:
            files[history_directory(self._prefix)] = self._write_history()
        self._stack.close()
        for directory, writer in self._writers.values():
            files.setdefault(directory, []).extend(writer.files)
        files = {directory: written for directory, written in files.items() if written}
        step("files-written")
        offsets = list(self._offsets.values())
        return Batch(self._batch_id, files, offsets, self.rows, self._position, self._boundary, anew=self.anew)

    def _write_history(self) -> list[DataFile]:
        directory = history_directory(self._prefix)
        self._tables.ensure(directory, HISTORY)
        rows = [
            {"position": f"{self._batch_id:016x}/{number:012x}", "record": record, "window_id": self._batch_id}
            for number, record in enumerate(self._added_history)
        ]
        with TopicWriter(self._tables.location, directory, HISTORY, self._batch_id, self._attempt) as writer:
            writer.write(pa.Table.from_pylist(rows, HISTORY).to_batches())
        return writer.files

    def abandon(self) -> None:
        """Remove the files, which are not recorded."""
        error = InterruptedError("abandoned")
        self._stack.__exit__(type(error), error, None)
