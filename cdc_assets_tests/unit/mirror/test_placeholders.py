"""A changed `unavailable.value.placeholder`: what stood for a missing value before is no value afterwards."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.lake.events import EventRange, TopicReader
from cdc_assets.lake.placeholders import placeholders
from cdc_assets.lake.row_shape import MISSING
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

COLUMNS = "id int NOT NULL PRIMARY KEY, note nvarchar(50), big nvarchar(max), bytes varbinary(max)"
NAMES = "id, note, big, bytes"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A table whose large values the log omits, with an event of each of three placeholders."""
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path / "lake", COLUMNS)
        made.execute("INSERT INTO dbo.t VALUES (1, N'a', N'large', 0x0102), (2, N'b', NULL, NULL)")
        made.capture("snapshot")
        for text in (made.config.events.unavailable_value, "(not logged)", "fehlt"):
            made.config = replace(made.config, events=replace(made.config.events, unavailable_value=text))
            made.execute(f"UPDATE dbo.t SET note = N'{text}'")
            made.capture()
        yield made


@pytest.mark.long
def test_each_placeholder_that_a_topic_has_had_counts_as_missing(world: World) -> None:
    assert placeholders(TopicTables.of(world.config), TOPIC) == (
        "__debezium_unavailable_value",
        "(not logged)",
        "fehlt",
    )
    for anew in (False, True):
        world.mirror(anew=anew)
        assert ordered(world.rows()) == ordered(world.on_server(NAMES))


@pytest.mark.long
def test_compaction_by_key_reads_events_alike(world: World) -> None:
    """An event that lacks a value does not replace the one that has it."""
    [found], troubles = CaptureMirrors(world.config, LocalRunner(2), SystemClock()).found()
    assert not troubles
    about = found.description
    reader = TopicReader(TopicTables.of(world.config).location, about.shape, about.generations)
    events = [row for part in reader.read(found.files, EventRange("", "~", 2**62, 2**62)) for row in part.to_pylist()]
    omitted = [row[MISSING + "big"] for row in events if row["id"] == 1]
    assert omitted.count(True) == 3
    assert omitted.count(False) == 1
