"""Random histories of a server and a capture in bad weather: each change once, in order, intervals exact, rows = server.

`CDC_HISTORIES` plays more of them than two: a number, or `first:end`. `CDC_HISTORIES_LAG` lets the
capture job stand still for up to so many seconds. Every eighth history is a shorter one, with its lake in an
object store that loses answers. With `CDC_HISTORIES_SPARK` all tasks run on Spark, whose JVM and workers are killed too; pyspark
does not close its pipe to a JVM that is killed before it answers.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdc_assets.adapters.spark.session import LazySession, stop_spark
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets_tests.contract.histories.chronicle import DATABASES
from cdc_assets_tests.contract.histories.unreliable_store import unreliable
from cdc_assets_tests.contract.histories.verdict import check
from cdc_assets_tests.contract.histories.weather import Weather
from cdc_assets_tests.object_store import BUCKET, SECRET, lake_properties, open_store
from mssql_standin.control import StandIn

_FIRST, _, _END = os.environ.get("CDC_HISTORIES", "2").rpartition(":")
SEEDS = range(int(_FIRST or 0), int(_END))
LAG_S = float(os.environ.get("CDC_HISTORIES_LAG", "0.5"))
SPARK = bool(os.environ.get("CDC_HISTORIES_SPARK"))
STEPS, STEPS_IN_STORE = 60, 25


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of a few rows take several rounds."""
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 4)
    monkeypatch.setattr("cdc_assets.snapshot.rounds.MIN_SLICE", 1)
    monkeypatch.setattr("cdc_assets.snapshot.rounds._ROUND_SLICES", 1)


@pytest.fixture(scope="module", autouse=True)
def ended_spark() -> Iterator[None]:
    """No JVM is left."""
    yield
    if SPARK:
        stop_spark()


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Address of an object store."""
    with open_store() as address:
        yield address


def play(
    server: StandIn,
    lake: dict[str, str],
    seed: int,
    folder: Path,
    steps: int = STEPS,
    calm: Callable[[], object] = lambda: None,
) -> None:
    """Play a history and hold its lake against the law."""
    weather = Weather(server, lake, seed, LAG_S, LazySession(SparkSettings("local[2]")).runner() if SPARK else None)
    try:
        weather.play(steps, calm)
        assert check(weather.chronicle, weather.config)
    except BaseException:
        (folder / "history.sql").write_text(weather.said)
        print(weather.said[-6000:], weather.state(), folder, sep="\n")  # noqa: T201 - shown when the test fails
        raise


@pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.law
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_change_is_in_the_lake_once(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> None:
    with StandIn(databases=DATABASES) as server:
        if seed % 8 != 7:
            play(server, {"lake.path": str(tmp_path / "lake")}, seed, tmp_path)
            return
        with unreliable(request.getfixturevalue("store"), seed) as proxy:
            lake = lake_properties(proxy.address) | {
                "lake.path": f"s3://{BUCKET}/history-{seed}",
                "lake.storage.option.AWS_SECRET_ACCESS_KEY": SECRET,
            }
            play(server, lake, seed, tmp_path, STEPS_IN_STORE, proxy.calm)
            assert proxy.calm(), "no answer was lost"
