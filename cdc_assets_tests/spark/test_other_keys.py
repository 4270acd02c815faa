"""Events of a table that are told apart by other columns from some LSN on, as rows: each row once, or the reason why not."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from cdc_assets import current_rows, read
from cdc_assets.adapters.spark.current_rows import POSITION
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import InvalidValueError
from cdc_assets_tests.unit.mirror.keyed import COLUMNS, MOVES, begun, name_key
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = pytest.mark.spark


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def moved(world: World) -> None:
    for statement in MOVES:
        world.execute(statement)
    world.capture()


def of(frame: DataFrame) -> list[str]:
    return ordered([row.asDict() for row in current_rows(frame).drop(POSITION).collect()])


@pytest.mark.long
@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("a", "a, b"), ("a, b", "a")])
def test_events_of_two_keys_are_refused_and_those_of_one_are_the_rows(
    server: StandIn, tmp_path: Path, spark_resource: SparkResource, old: str, new: str
) -> None:
    world = begun(server, tmp_path / "lake", old, by_property=True)
    session = spark_resource.spark_session

    def events(**bounds: str) -> DataFrame:
        return read(session, str(world.lake), TOPIC, **bounds)

    if old == "a":  # with the key (a, b) there are two rows with one `a`, one of which is removed
        assert of(events()) == ordered(world.on_server(COLUMNS))
    name_key(world, new)
    moved(world)
    world.read_again()
    with pytest.raises(InvalidValueError, match="read the mirror") as refused:
        current_rows(events())
    [last] = re.findall(r"after (\S+) \(from_lsn", str(refused.value))
    assert of(events(from_lsn=last)) == ordered(world.on_server(COLUMNS))
    name_key(world, old)
    world.execute("UPDATE dbo.t SET note = N'again' WHERE a = 9")
    world.capture()
    world.read_again()
    with pytest.raises(InvalidValueError, match="read the mirror") as refused:
        current_rows(events())
    [last] = re.findall(r"after (\S+) \(from_lsn", str(refused.value))
    assert of(events(from_lsn=last)) == ordered(world.on_server(COLUMNS)), "the newest key has been one before"


@pytest.mark.long
def test_events_without_a_key_beside_those_with_one_are_refused(
    server: StandIn, tmp_path: Path, spark_resource: SparkResource
) -> None:
    world = begun(server, tmp_path / "lake", "", by_property=True)
    name_key(world, "a")
    moved(world)
    with pytest.raises(PySparkException, match="read the mirror"):
        of(read(spark_resource.spark_session, str(world.lake), TOPIC))
