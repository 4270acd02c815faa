"""A command that was asked to end, ends, whatever it waits for."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cdc_assets_tests.shop import Shop, open_shop

_HANGS = """
import sys
from collections.abc import Iterator
from importlib import import_module
from threading import Event
from cdc_assets.core import interruption
from cdc_assets.cli.main import main

def hang(*arguments, **options):
    print("begun", flush=True)
    Event().wait()  # as a call into a library that waits for a server which is stopped

interruption.PATIENCE_S = 1.0
setattr(import_module(f"cdc_assets.cli.{sys.argv[1]}"), sys.argv.pop(2), hang)
main()
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("ending")) as found:
        yield found


@pytest.mark.parametrize(
    "command",
    [
        ("capture", "open_capture"),
        ("mirror", "open_mirrors"),
        ("reconcile", "open_reconciler", "dbo.orders"),
        ("publish", "publish_topics"),
    ],
    ids=lambda command: command[0],
)
def test_command_that_cannot_be_interrupted_is_killed_after_a_while(shop: Shop, command: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HANGS, *command],
        env=os.environ | shop.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "the command has not ended within" in said
