"""The commands with which the page on clusters begins, as they stand there but for their ports."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.shop import ROOT, open_shop

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def test_the_five_commands_capture_on_a_cluster(tmp_path: Path) -> None:
    (script, *_) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "clusters.md").read_text(), re.DOTALL)
    for fixed, own in {"7077": free_port(), "8080": "0", "spark-work": str(tmp_path / "work")}.items():
        assert fixed in script
        script = script.replace(fixed, own)
    *daemons, export, check, capture = script.splitlines()
    path, log = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", tmp_path / "log"
    with open_shop(tmp_path) as shop, log.open("wb") as told:
        environment = os.environ | shop.environment | {"PATH": path}
        cluster = subprocess.Popen(
            ["bash", "-c", "\n".join([*daemons, "wait"])],
            env=environment, stdout=told, stderr=told, start_new_session=True,
        )  # fmt: skip
        try:
            wait_until(lambda: "Successfully registered with master" in log.read_text(), 120, log.read_text)
            commands = ["bash", "-e", "-c", "\n".join([export, check, capture])]
            done = subprocess.run(commands, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        finally:
            os.killpg(cluster.pid, signal.SIGKILL)
            cluster.wait()
        assert done.returncode == 0, done.stderr
        assert shop.differences() == {}
    assert "code shipped by this process" in done.stderr
    assert len(list((tmp_path / "work").iterdir())) == 2, "an application of each of the last two commands"
