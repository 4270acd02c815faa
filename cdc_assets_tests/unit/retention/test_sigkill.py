"""A process that is killed while it drops old events: the next one goes on, and nothing else is lost."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.steps import VARIABLE
from cdc_assets.lake.retained import retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.run.overview import CaptureOverview
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.e2e.chains import RETENTION
from cdc_assets_tests.unit.retention.child import retaining
from cdc_assets_tests.unit.streaming.child import DATABASE, run

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


@pytest.mark.parametrize("step", RETENTION)
def test_the_next_run_goes_on(server: StandIn, lake: Path, tmp_path: Path, step: str) -> None:
    own = tmp_path / "lake"
    shutil.copytree(lake, own)
    command = [
        sys.executable,
        "-m",
        "cdc_assets_tests.unit.retention.child",
        str(server.port),
        server.password,
        str(own),
    ]
    died = subprocess.run([*command, "1"], env=os.environ | {VARIABLE: step}, capture_output=True, timeout=300)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    config = retaining(server.port, server.password, str(own))
    ever, tables = positions(lake), TopicTables.of(config)
    announced = retained(tables, TOPIC).after
    assert {at for at in ever if at[:22] > announced} <= positions(own) <= ever

    assert not CaptureOverview(config, audit_s=None).losses
    assert rows(own) == rows(lake)
    again = subprocess.run([*command, "2"], capture_output=True, timeout=300)
    assert again.returncode == 0, again.stderr.decode()
    left, announced = positions(own), retained(TopicTables.of(config), TOPIC).after
    assert {at for at in ever if at[:22] > announced} <= left < ever
    assert not CaptureMirrors(config, LocalRunner(1), SystemClock()).catch_up()
    assert rows(own) == rows(lake)
    assert not CaptureOverview(config, audit_s=None).losses
