"""A topic with timestamps without zone says all that its columns need: Spark with Delta refuses it else."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from cdc_assets.lake.evolution import lake_schema
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import adapt
from cdc_assets_tests.unit.lake.writing import schema_of, write

NEEDED = {"invariants", "timestampNtz"}
PLAIN, WITH_TIME = schema_of(id=pa.int32()), schema_of(id=pa.int32(), at=pa.timestamp("us"))


@pytest.fixture
def tables(tmp_path: Path) -> TopicTables:
    return TopicTables(Location(str(tmp_path)), "shop")


def features(tables: TopicTables) -> set[str]:
    return set(DeltaTable(tables.location.uri("topic")).protocol().writer_features or ())


@pytest.mark.parametrize("first", [PLAIN, WITH_TIME])
def test_a_topic_that_is_made_or_extended_says_them(tables: TopicTables, first: pa.Schema) -> None:
    tables.ensure("topic", first)
    assert features(tables) == (NEEDED if first is WITH_TIME else set())
    for window in (1, 2):
        assert tables.commit("topic", WITH_TIME, write(tables, WITH_TIME, window, {"id": window}), window, {})
    assert features(tables) == NEEDED
    assert tables.row_count("topic") == 2
    (mark,) = tables.fresh_marks().values()
    assert (mark.window, mark.rows) == (2, 2)


def test_one_whose_writer_died_before_it_said_them_says_them_later(tables: TopicTables) -> None:
    schema = lake_schema(WITH_TIME)
    DeltaTable.create(tables.location.uri("topic"), Schema.from_arrow(schema), configuration=tables.properties(schema))
    assert features(tables) == {"timestampNtz"}
    adapt(tables, "topic")
    assert features(tables) == NEEDED
    version = DeltaTable(tables.location.uri("topic")).version()
    adapt(tables, "topic")
    assert DeltaTable(tables.location.uri("topic")).version() == version
