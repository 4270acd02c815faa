"""Topic tables in object stores as Spark data frames, read and written with Arrow inside tasks.

Spark's own Parquet reader reaches an object store only through Hadoop's connectors: jars that no Python package
brings, and every address and credential spelled a second time. A task that opens a file through the lake's own store
client needs neither: there is one set of options for the capture, its commits and its readers.

It costs more processor time than Spark's reader and reads all columns of a file; files are selected before that by the
statistics in the Delta log. So local files are read by Spark's own reader. All are written here: Spark's own writer says
neither which files it has written nor how many rows, so nobody would notice that executors write to another disk.

*Why a repeated task doubles nothing.* A task whose executor is lost is run again, and the file of the first attempt may be
there already. So a folder's files are not listed: each task reports its own, Spark passes on the reports of the attempts
that count, and `commit` writes them into the folder, in one file. A crash before that leaves files that nobody refers to.

The lake's options may hold secrets. They are sent to the tasks inside the pickled source and are never among the
options of a read, which Spark shows in its plans.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location

_DIRECTORY, _FILES, _WINDOW = "directory", "files", "window_id"
_REPORT = "files.json"
_BATCH_ROWS = 16 * 1024
_NO_COLUMNS = pa.schema([])
_REGISTERED: "WeakKeyDictionary[SparkSession, set[str]]" = WeakKeyDictionary()
"""Sources that sessions know."""


def read_files(
    session: SparkSession, location: Location, directory: str, files: Sequence[str], structure: StructType
) -> DataFrame:
    """Some files of a table, one task each.

    Args:
        session: classic or Connect.
        files: paths below it.
        structure: structure of the rows; fields that a file lacks are null.
    """
    reader = session.read.format(_registered(session, location)).schema(structure)
    return reader.option(_DIRECTORY, directory).option(_FILES, json.dumps(list(files))).load()


def write_files(
    frame: DataFrame, location: Location, directory: str, schema: pa.Schema, window_id: int
) -> list[DataFile]:
    """Write a data frame as Parquet files into a new directory, one for each of its partitions with rows.

    Args:
        directory: below the lake.
        schema: of the files.
        window_id: number that becomes part of their names.

    Raises:
        LakeError: Spark's driver does not write to this lake.
    """
    writer = frame.write.format(_registered(frame.sparkSession, location, schema)).mode("append")
    writer.option(_DIRECTORY, directory).option(_WINDOW, str(window_id)).save()
    folder = Folder(location, directory)
    files = [DataFile(**file) for file in json.loads(folder.read(_REPORT))]
    folder.remove(_REPORT)
    return files


def _registered(session: SparkSession, location: Location, columns: pa.Schema = _NO_COLUMNS) -> str:
    """Name under which the source of this lake is registered in the session; the same lake always has the same name."""
    name = "cdc_lake_" + sha256(f"{location.root} {location.options} {columns}".encode()).hexdigest()[:16]

    class LakeSource(DataSource):
        """Defined here so that it is pickled with what it encloses: the lake and its options."""

        @classmethod
        def name(cls) -> str:
            return name

        def reader(self, schema: StructType) -> DataSourceReader:
            return _Reader(location, self.options[_DIRECTORY], json.loads(self.options[_FILES]), schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
            return _Writer(location, self.options[_DIRECTORY], columns, int(self.options[_WINDOW]))

    _activate(session)
    known = _REGISTERED.setdefault(session, set())
    if name not in known:  # Spark warns of a second time, and each costs as much as a query
        from cdc_assets.adapters.spark.shipping import ship_code  # where frames are made; tasks import this module, too

        ship_code(session)
        session.dataSource.register(LakeSource)
        known.add(name)
    return name


def _activate(session: SparkSession) -> None:
    """Make a session the thread's active one: there Spark looks a source up, whatever session a frame is of."""
    if isinstance(session, SparkSession):  # a Connect session is none; its server knows which one asks
        from cdc_assets.adapters.spark.jvm import activate  # tasks import this module, too

        activate(session)


class _File(InputPartition):
    """One file."""

    def __init__(self, path: str) -> None:
        self.value = path


class _Reader(DataSourceReader):
    """Reads files in tasks.

    Args:
        files: below it.
        structure: Spark's, to which rows are cast.
    """

    def __init__(self, location: Location, directory: str, files: Sequence[str], structure: StructType) -> None:
        self._location, self._directory, self._files, self._structure = location, directory, files, structure

    def partitions(self) -> Sequence[InputPartition]:
        """One for each file."""
        return [_File(path) for path in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the file's rows."""
        store = self._location.existing(self._directory)
        schema = to_arrow_schema(self._structure, timezone="UTC")  # as Spark expects it
        from pyarrow.dataset import dataset  # in its reader only: it brings pandas with it, where that is installed

        yield from dataset(partition.value, schema, format="parquet", filesystem=store).to_batches(
            batch_size=_BATCH_ROWS
        )


@dataclass(frozen=True, slots=True)
class _Written(WriterCommitMessage):
    """Files of a task."""

    files: Sequence[DataFile]


class _Writer(DataSourceArrowWriter):
    """Writes partitions in tasks; the files count only once a Delta commit names them.

    Args:
        directory: below it.
        schema: of the files, to which rows are cast.
        window_id: for their names.
    """

    def __init__(self, location: Location, directory: str, schema: pa.Schema, window_id: int) -> None:
        self._location, self._directory, self._schema, self._window_id = location, directory, schema, window_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: the partition's rows."""
        with TopicWriter(self._location, self._directory, self._schema, self._window_id) as writer:
            for batch in iterator:
                writer.write(pa.Table.from_batches([batch]).cast(self._schema).to_batches())
        return _Written(writer.files)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On Spark's driver: report the files of the attempts that count."""
        files = [file for message in messages if isinstance(message, _Written) for file in message.files]
        report = json.dumps([asdict(file) for file in files]).encode()
        Folder(self._location, self._directory).write(_REPORT, report)
