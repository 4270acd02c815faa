"""The lake's tables as Spark data frames, in any session: ours or another's, classic or Connect.

*Which files.* delta-rs reads the Delta log, so no Delta jars are needed (there are none for Spark 4.3, spec spark §5). A
frame names the files of one version. Other files in the folder are in no frame: those that were replaced, of attempts that were
given up, of a commit that is still to come. A frame that was made stays as it is: it can be read as
long as replaced files are kept (`lake.retention.hours`). Files outside the requested LSNs are skipped by the statistics
in the log. A log that says more than which files there are, such as which of their rows are deleted, is refused.

*Who reads them.* Spark itself if they are on disk, and `lake_source` in an object store. A frame has the structure of the
Delta table, so rows written before a column was added read as null there. Whatever the session's own settings are, a file that is gone
or damaged is an error, and old dates mean what they say: options of the read come first.

*A topic* that has changed in an incompatible way is read over all its generations (`generations`). What it still holds is
requested after its files were listed: so what was dropped in between is refused or left out, and never missing.
"""

import json
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cdc_assets.adapters.spark.generations import together
from cdc_assets.adapters.spark.lake_source import read_files
from cdc_assets.adapters.spark.lsn_range import LsnRange
from cdc_assets.errors import InvalidValueError, LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.overwriting import is_outside
from cdc_assets.lake.retained import retained
from cdc_assets.lake.tables import require_plain
from cdc_assets.lake.topics import TopicTables

_EXACT = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "datetimeRebaseMode": "CORRECTED"}
_NAMED = 20
"""Tables that an error names at most."""
_GLOB = re.compile(r"[{}\[\]*?\\]")
"""Characters that Hadoop takes for a pattern of names."""


class LakeReader:
    """Reads the tables of one lake.

    Args:
        session: function that returns the session; called once a table was found.
    """

    def __init__(self, tables: TopicTables, session: Callable[[], SparkSession]) -> None:
        self._tables, self._session = tables, session

    def table(self, directory: str, lsns: LsnRange | None = None, partitions: Sequence[str] | None = None) -> DataFrame:
        """The rows of a Delta table.

        Args:
            lsns: of a table of events.
            partitions: keys of partitions, of a table that an asset overwrites by these; None for all.

        Raises:
            InvalidValueError: the table has no events, so no range either.
            LakeError: the table is missing or cannot be read.
        """
        lsns = lsns or LsnRange()
        handle = self._tables.open(directory)
        if handle is None:
            raise _missing(self._tables.location, directory)
        require_plain(directory, handle)
        structure = StructType.fromJson(json.loads(handle.schema().to_json()))
        if lsns != LsnRange() and "position" not in structure.names:
            raise InvalidValueError(
                "range of LSNs", directory, "the name of a topic", "read this table without a range"
            )
        paths = [path for path in _files(handle, lsns) if partitions is None or not is_outside(path, partitions)]
        return lsns.filter(self._frame(directory, paths, structure))

    def events(
        self, topic: str, lsns: LsnRange, generation: int | None = None, partitions: Sequence[str] | None = None
    ) -> DataFrame:
        """Events of a topic, of all its generations or of one.

        Args:
            generation: its number, from 1.
            partitions: as for `table`.

        Raises:
            EventsDroppedError: the topic no longer holds all that is requested.
            InvalidValueError: there is no such generation.
            LakeError: the topic is missing or cannot be read.
        """
        frame = together([self.table(part, lsns, partitions) for part in self._parts(topic, generation)])
        return lsns.held_by(topic, retained(self._tables, topic)).filter(frame)

    def _parts(self, topic: str, generation: int | None) -> list[str]:
        """Directory of the chosen generation, or of all, oldest first."""
        found = self._tables.generations(topic) or [topic]
        if generation is None:
            return found
        if not 1 <= generation <= len(found):
            raise InvalidValueError("generation of a topic", generation, f"1 to {len(found)}", "correct it")
        return [found[generation - 1]]

    def _frame(self, directory: str, paths: Sequence[str], structure: StructType) -> DataFrame:
        session, location = self._session(), self._tables.location
        if not paths:
            return session.createDataFrame([], structure)
        if not location.on_disk:
            return read_files(session, location, directory, paths, structure)
        scheme = "file://" if location.is_local else ""  # else Hadoop looks where its default is
        places = (scheme + _GLOB.sub(r"\\\g<0>", location.uri(f"{directory}/{path}")) for path in paths)
        return session.read.options(**_EXACT).schema(structure).parquet(*places)


def _missing(location: Location, directory: str) -> LakeError:
    """The error for a table that does not exist; it names those that do, the likeliest first."""
    known = [name for name in location.directories() if "@" not in name]
    named = get_close_matches(directory, known, _NAMED, cutoff=0)
    more = f" and {len(known) - len(named)} more" if len(known) > len(named) else ""
    return LakeError(
        f"There is no table {directory!r} in {location.root}. It has {', '.join(named) or 'no table at all'}{more}. "
        "Next: correct the name or the place of the lake; a table must be captured first, and its mirror be made."
    )


def _files(handle: DeltaTable, lsns: LsnRange) -> list[str]:
    """Paths of the files that may hold rows of a range."""
    adds = pa.table(handle.get_add_actions(flatten=True))
    bounds = (_column(adds, name) for name in ("path", "min.position", "max.position"))
    return [str(path) for path, least, greatest in zip(*bounds, strict=True) if lsns.may_hold(least, greatest)]


def _column(adds: pa.Table, name: str) -> list[str | None]:
    """A column of the log's account of files; all None if it says nothing about that."""
    return list(adds[name].to_pylist()) if name in adds.column_names else [None] * adds.num_rows
