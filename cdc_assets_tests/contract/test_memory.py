"""Memory of a process that reads large values: bounded by bytes, not by rows.

In a process of its own, because the stand-in keeps its tables in memory, and because memory that was freed once stays
with the process.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract

ROWS, MB = 160, 1024 * 1024
"""What a batch of rows would come to if it were bounded in rows alone, times three: as it arrives, as an event, as a file."""

CHILD = """
import json, sys
from pathlib import Path
from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.build import build_config
from cdc_assets.capture.capture import Capture

class Loop:
    parallelism = 1
    def get_ready(self):
        pass
    def run(self, function, tasks, job):
        return [function(task) for task in tasks]

def used():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

config = build_config(json.loads(sys.argv[1]))
Path("/proc/self/clear_refs").write_text("5")
before = used()
with SqlServerSource(config.connection) as source:
    getattr(Capture(config, source, MssqlBulkSource.of(config), Loop(), SystemClock()), sys.argv[2])()
print(used() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the greatest memory of a process")
def test_large_values_take_no_more_memory_than_a_few_of_them(tmp_path: Path) -> None:
    with StandIn(databases=("Media",)) as server:
        server.execute("CREATE TABLE dbo.films (id int NOT NULL PRIMARY KEY, v varbinary(max))", database="Media")
        text = "INSERT INTO dbo.films SELECT ?, CAST(REPLICATE(CAST('x' AS varchar(max)), 1048576) AS varbinary(max))"
        for number in range(ROWS):
            server.execute(text, number, database="Media")
        server.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'films', @role_name = NULL",
            database="Media",
        )
        server.agent.drain()
        settings = {
            "topic.prefix": "shop",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "sa",
            "database.password": server.password,
            "database.names": "Media",
            "driver.encrypt": "no",
            "lake.path": str(tmp_path / "lake"),
            "stream.idle.timeout.ms": "1",
        }
        assert grown(settings, "snapshot") < 340 * MB
        server.execute("DELETE FROM dbo.films WHERE id >= 0", database="Media")
        server.agent.drain()
        assert grown(settings, "stream") < 340 * MB


def grown(settings: dict[str, str], what: str) -> int:
    """Bytes by which a process grows at most."""
    command = [sys.executable, "-c", CHILD, json.dumps(settings), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])
