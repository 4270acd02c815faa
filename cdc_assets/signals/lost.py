"""Signals that the server's clean-up removed after they were captured and before they were read.

Windows write the rows of a signal table to its topic like those of any table, and the rows are read as signals once that is
committed. If a run dies in between, and the next one comes after the retention of the change tables, they are gone from
the server. So where the low-water mark has passed the place up to which signals were read, the topic shows whether there
were any. They are not carried out from there: settings may mask or leave out columns of events, and what was requested
long ago may no longer be wanted.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.core.lsn import LSN_WIDTH, Lsn
from cdc_assets.core.signal import Signal
from cdc_assets.lake.files import STATISTICS
from cdc_assets.lake.location import STORE_ERRORS, trouble
from cdc_assets.lake.topics import TopicTables
from cdc_assets.signals.model import Watermark, parse


def inserted_signals(tables: TopicTables, topic: str, after: Lsn, until: Lsn) -> list[str]:
    """Ids of the signals that were inserted into a signal table in (after, until], by its topic; without the capture's markers.

    Raises:
        LakeError: the topic cannot be read.
    """
    found = []
    for directory in tables.generations(topic):
        try:
            for value in _inserted(tables, directory, after, until):
                own_id, kind = [*map(str, value.values()), "", ""][:2]
                if not isinstance(parse(Signal(own_id, kind, None)).request, Watermark):
                    found.append(own_id)
        except STORE_ERRORS as error:
            uri = tables.location.uri(directory)
            raise trouble(f"The signals in {uri} cannot be read", error, "check the path and its rights") from error
    return found


def _inserted(tables: TopicTables, directory: str, after: Lsn, until: Lsn) -> Iterator[Mapping[str, Any]]:
    handle = tables.open(directory)
    files = [] if handle is None else pa.table(handle.get_add_actions(flatten=True)).to_pylist()
    for file in files:
        least, greatest = file.get(f"min.{STATISTICS}"), file.get(f"max.{STATISTICS}")
        if least and greatest and (greatest[:LSN_WIDTH] <= str(after) or least[:LSN_WIDTH] > str(until)):
            continue
        with tables.location.existing(directory).open_input_file(file["path"]) as stream:
            rows = pq.ParquetFile(stream).read(columns=[STATISTICS, "value"]).to_pylist()
        for row in rows:
            value, position = row["value"], row[STATISTICS] or ""  # none of a row that another program has appended
            if str(after) < position[:LSN_WIDTH] <= str(until) and value and value["op"] == "c" and value["after"]:
                yield value["after"]
