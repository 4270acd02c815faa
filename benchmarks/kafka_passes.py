"""Captures and publishes several times in one process: run by `benchmarks.kafka`.

Each pass has a configuration of its own, with a lake and topics: `cdc-assets capture --local`, then `cdc-assets publish`.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from benchmarks.passes import claim_memory, tell
from cdc_assets.cli.main import app


def main() -> None:
    """Do what the parent asks for."""
    given: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    for number, file in enumerate(map(Path, given["files"])):
        if number:  # the cold pass began with this process
            claim_memory()
        tell(lambda: run(file))  # noqa: B023 - called at once
        shutil.rmtree(file.parent / "lake")


def run(file: Path) -> None:
    """The two commands."""
    for command in (["capture", "--local"], ["publish"]):
        done = CliRunner().invoke(app, [*command, "--config", str(file)])
        assert done.exit_code == 0, done.output


if __name__ == "__main__":
    main()
    os._exit(0)
