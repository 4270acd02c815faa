"""A user's own session of Spark Connect in the process of a capture: it keeps its settings, and is not stopped."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest

from cdc_assets_tests.cluster.site import bare_python

pytestmark = [pytest.mark.spark, pytest.mark.jvms, pytest.mark.timeout(900)]

_SERVER = """
import sys
from pyspark.sql import SparkSession

conf = {
    "plugins": "org.apache.spark.sql.connect.SparkConnectPlugin", "ui.enabled": "false",
    "connect.grpc.binding.address": "127.0.0.1", "connect.grpc.binding.port": sys.argv[1],
}
SparkSession.builder.master("local[1]").config(map={f"spark.{name}": text for name, text in conf.items()}).getOrCreate()
print("there", flush=True)
sys.stdin.read()
"""
_CLIENT = """
import sys
from pyspark.sql import SparkSession
from cdc_assets.defs.spark import SparkResource
from cdc_assets_tests.jobs import JOB

address, zone, changed = sys.argv[1], "spark.sql.session.timeZone", []
users = SparkSession.builder.remote(address).getOrCreate()
users.conf.set(zone, "Asia/Tokyo")
users.client.set_retry_policies = changed.append
ours = SparkResource(remote=address, tasks=1)
print(ours.runner().run(abs, [-1], JOB), ours.spark_session is users)
ours.spark_session.stop()
print(users.conf.get(zone), changed, users.range(3).count(), SparkSession.builder.remote(address).getOrCreate() is users)
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of a server whose tasks run on this machine, by a Python that has the libraries but not our code, which must be shipped."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environment["PYSPARK_PYTHON"] = bare_python(tmp_path / "python", Path(pyarrow.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, port],
        env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "there\n"
        yield f"sc://127.0.0.1:{port}"
        server.stdin.close()
        server.kill()


def test_session_of_a_user_is_neither_changed_nor_stopped(address: str) -> None:
    done = subprocess.run([sys.executable, "-c", _CLIENT, address], capture_output=True, text=True, timeout=500)
    assert done.stdout.splitlines() == ["[1] False", "Asia/Tokyo [] 3 True"], done.stderr[-5000:]
