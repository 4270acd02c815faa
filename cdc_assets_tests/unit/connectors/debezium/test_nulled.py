"""Values that a connector could not convert, and sent as null, are counted by its log and told."""

import io
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cdc_assets.connectors.debezium.log import EngineLog
from cdc_assets.connectors.engine.feed import Chunk
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.overview.engine import report_of_engine
from cdc_assets_tests.unit.connectors.engine.batches import EVENTS, config_for, run
from cdc_assets_tests.unit.connectors.engine.feeds import ListFeed

LINES = b"""
12:00:00.000 WARN  [i.d.r.TableSchemaBuilder] Failed to properly convert data value for 'public.n.price' of type numeric
org.apache.kafka.connect.errors.DataException: NaN
12:00:00.001 WARN  [i.d.j.JdbcValueConverters] Unexpected value for JDBC type 2003 and column cells _INT4(10) DEFAULT VALUE x: class=class [I
12:00:00.002 WARN  [i.d.j.JdbcValueConverters] Failed to convert value '12:61' from column 'at' to 'TIME'
12:00:00.003 WARN  [i.d.r.TableSchemaBuilder] Failed to properly convert data value for 'public.n.price' of type numeric
12:00:00.004 INFO  [i.d.c.Other] Nothing of it
"""


def test_the_log_counts_them_by_column() -> None:
    log = EngineLog({})
    log.follow(io.BytesIO(LINES)).join()
    assert log.nulled() == {"public.n.price": 2, "cells": 1, "at": 1}
    assert log.nulled() == {}


def test_a_value_with_line_breaks_is_counted_once() -> None:
    lines = b"""
12:00:00.000 WARN  [i.d.j.JdbcValueConverters] Failed to convert value 'a
b
12:61' from column 'note' to 'TIME'
java.lang.Exception: Failed to convert value 'a' from column 'other' to 'TIME'
12:00:00.001 WARN  [i.d.j.JdbcValueConverters] Unexpected value for JDBC type 12 and column cells VARCHAR(10) DEFAULT VALUE 'x
y': class=class [I
12:00:00.002 WARN  [i.d.j.JdbcValueConverters] Failed to convert value 'a
12:00:00.003 INFO  [i.d.c.Other] ' from column 'never' to 'TIME'
"""
    log = EngineLog({})
    log.follow(io.BytesIO(lines)).join()
    assert log.nulled() == {"note": 1, "cells": 1}


@pytest.mark.long
def test_a_value_of_thousands_of_lines_takes_no_longer_than_they_do() -> None:
    """It took minutes, and the engine waits for whoever reads its log."""
    value = "a\n" * 20_000
    lines = f"12:00:00.000 WARN  [x] Failed to convert value '{value}' from column 'note' to 'TIME'\n"
    log, begun = EngineLog({}), time.process_time()
    log.follow(io.BytesIO(lines.encode())).join()
    assert time.process_time() - begun < 5
    assert log.nulled() == {"note": 1}


class Nulling(ListFeed):
    def _chunk(self, number: int, start: int, end: int) -> Chunk:
        return replace(super()._chunk(number, start, end), nulled={"n.price": number})


def test_they_are_recorded_with_the_batch_and_told(tmp_path: Path) -> None:
    run(tmp_path, Nulling(EVENTS[:30], [10, 20, 30]), rows=10)
    run(tmp_path, ListFeed(EVENTS, [60]))
    overview = EngineOverview(config_for(tmp_path))
    assert overview.state.nulled == {"n.price": 6}
    assert any(
        "6 values of n.price are null" in text for text in report_of_engine(overview, None, datetime.now(UTC)).advice
    )
