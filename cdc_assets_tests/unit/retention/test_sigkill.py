"""A process that is killed while it drops old events: the next one goes on, and nothing else is lost."""

import shutil
import signal
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import CleanupPolicy
from cdc_assets.core.steps import VARIABLE
from cdc_assets.lake.retained import retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.e2e.chains import COMPACTION, RETENTION
from cdc_assets_tests.unit.retention.child import retaining
from cdc_assets_tests.unit.streaming.child import DATABASE, run
from cdc_assets_tests.warm import run_module
from mssql_standin.control import StandIn

TOPIC = f"shop.{DATABASE}.dbo.t"


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


@pytest.fixture(scope="module")
def lake(server: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four windows that a mirror has."""

    def execute(statement: str) -> None:
        server.execute(statement, database=DATABASE)

    path = tmp_path_factory.mktemp("retention") / "lake"
    config = retaining(server.port, server.password, str(path))
    execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, note nvarchar(50))")
    execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL")
    execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b'), (3, N'c')")
    run(config, "snapshot")
    for turn in range(3):
        execute(f"UPDATE dbo.t SET note = N'turn {turn}' WHERE id > {turn}")
        execute(f"DELETE FROM dbo.t WHERE id = {turn}")
        server.agent.drain()
        run(config, "stream")
    assert not CaptureMirrors(config, LocalRunner(1), SystemClock()).catch_up()
    return path


def positions(lake: Path) -> set[str]:
    found: list[str] = DeltaTable(str(lake / TOPIC)).to_pyarrow_table(columns=["position"])["position"].to_pylist()
    return set(found)


def rows(lake: Path) -> list[str]:
    return sorted(
        repr(row)
        for name in ("current", "history")
        for row in DeltaTable(str(lake / f"{TOPIC}.__{name}")).to_pyarrow_table().to_pylist()
    )


@pytest.mark.parametrize(
    ("policy", "step"), [*(("delete", step) for step in RETENTION), *(("compact", step) for step in COMPACTION)]
)
def test_the_next_run_goes_on(server: StandIn, lake: Path, tmp_path: Path, policy: CleanupPolicy, step: str) -> None:
    own = tmp_path / "lake"
    shutil.copytree(lake, own)
    module = "cdc_assets_tests.unit.retention.child"
    where = [str(server.port), server.password, str(own)]
    died = run_module(module, *where, "1", policy, environment={VARIABLE: step})
    assert died.returncode == -signal.SIGKILL, died.said
    config = retaining(server.port, server.password, str(own), policy)
    ever, tables = positions(lake), TopicTables.of(config)
    announced = retained(tables, TOPIC).after
    assert {at for at in ever if at[:22] > announced} <= positions(own) <= ever
    assert policy == "delete" or events_fold(own) == events_fold(lake)

    assert not CaptureOverview(config, audit_s=None).losses
    assert rows(own) == rows(lake)
    again = run_module(module, *where, "2", policy)
    assert again.returncode == 0, again.said
    left, holds = positions(own), retained(TopicTables.of(config), TOPIC)
    assert {at for at in ever if at[:22] > holds.after} <= left < ever
    assert not CaptureMirrors(config, LocalRunner(1), SystemClock()).catch_up()
    assert rows(own) == rows(lake)
    assert not CaptureOverview(config, audit_s=None).losses
    if policy == "compact":
        assert holds.rows == holds.compacted == holds.after
        assert events_fold(own) == events_fold(lake)
        assert not CaptureMirrors(config, LocalRunner(1), SystemClock()).catch_up(anew=True)
        assert current(own) == current(lake)


def events_fold(lake: Path) -> dict[int, str]:
    """What the last event of each key leaves."""
    events = DeltaTable(str(lake / TOPIC)).to_pyarrow_table(columns=["position", "key", "value"]).to_pylist()
    last = {
        event["key"]["id"]: event["value"] for event in sorted(events, key=itemgetter("position")) if event["value"]
    }
    return {key: value["after"]["note"] for key, value in last.items() if value["op"] != "d"}


def current(lake: Path) -> list[tuple[int, str]]:
    found = DeltaTable(str(lake / f"{TOPIC}.__current")).to_pyarrow_table(columns=["id", "note"]).to_pylist()
    return sorted((row["id"], row["note"]) for row in found)
