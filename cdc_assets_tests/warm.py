"""Modules run as `python -m` runs them, in processes that need not import everything anew.

A process of the tests imports once what captures need, and then forks for each module, so that a process that is to be killed at a step
costs a tenth. It has no threads, sessions or files of its own when it forks; what the module does, and how it ends, is what it would be.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

_IMPORTED = (
    "cdc_assets_tests.unit.retention.child",
    "cdc_assets_tests.unit.mirror.child",
    "cdc_assets.cli.capture",
    "pandas",  # pyarrow does, where it is there
)
_LONGEST_S = 240
"""After which a process that hangs is ended; a loaded machine is no fault."""


@dataclass(frozen=True)
class Ended:
    """How a process has ended, as `subprocess` tells it, and what it has said."""

    returncode: int
    said: str


def run_module(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
    """Run a module to its end, or until it is killed.

    Args:
        module: its name.
        arguments: behind its name.
        environment: variables beside those of this process.
    """
    with tempfile.NamedTemporaryFile() as said:
        order = {"argv": [module, *arguments], "environment": {**os.environ, **(environment or {})}, "said": said.name}
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        ended = server.stdout.readline()
        if not ended:
            _server.cache_clear()
            raise AssertionError(
                f"{module} hung, so that the process that forks has ended: {Path(said.name).read_text()}"
            )
        return Ended(json.loads(ended), Path(said.name).read_text(errors="replace"))


@cache
def _server() -> subprocess.Popen[str]:
    """The process that forks, as long as this one lives."""
    pipe = subprocess.PIPE
    server = subprocess.Popen([sys.executable, "-m", __name__], stdin=pipe, stdout=pipe, text=True)
    atexit.register(server.communicate)  # its input ends, and so does it
    return server


def _serve() -> list[str] | None:
    """Fork for each order; in the child, the arguments of the module that it is from now on."""
    for module in _IMPORTED:
        import_module(module)
    gc.freeze()  # what nobody collects is not copied
    for line in sys.stdin:
        order = json.loads(line)
        if (child := os.fork()) == 0:
            _become(order)
            return list(order["argv"])
        print(_ended(child), flush=True)  # noqa: T201 - to who has asked
    return None


def _ended(child: int) -> int:
    """Wait for a child, and say how it has ended."""

    def give_up(number: int, frame: FrameType | None) -> None:
        os.kill(child, signal.SIGKILL)
        raise TimeoutError(f"The process did nothing for {_LONGEST_S} s.")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_LONGEST_S)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.alarm(0)


def _become(order: Mapping[str, Any]) -> None:
    """Have what was ordered: variables, and where to say something."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    nothing, said = os.open(os.devnull, os.O_RDONLY), os.open(order["said"], os.O_WRONLY)
    for own, number in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(own, number)
    os.environ.clear()
    os.environ.update(order["environment"])


if __name__ == "__main__":
    if (argv := _serve()) is not None:
        sys.argv = argv
        warnings.simplefilter("ignore", RuntimeWarning)  # that the module was imported before
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
