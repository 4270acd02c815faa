"""The command line with a witness in front of its task runner: `python -m benchmarks.command NOTES capture …`, run by `benchmarks.cold`.

Behind each job a line in the file NOTES says in which processes its tasks ran.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benchmarks.witness import Witness, noted
from cdc_assets.cli import capture
from cdc_assets.cli.main import main
from cdc_assets.core.ports import TaskRunner

_MADE = capture.task_runner


def run(notes: Path) -> None:
    """Run the command that the arguments name."""
    with notes.open("a") as file:

        @contextmanager
        def witnessed(local: bool, name: str) -> Iterator[TaskRunner]:
            with _MADE(local, name) as runner:
                yield Witness(runner, lambda seen: print(noted(seen), file=file, flush=True))

        with patch.object(capture, "task_runner", witnessed):
            main()


if __name__ == "__main__":
    run(Path(sys.argv.pop(1)))
