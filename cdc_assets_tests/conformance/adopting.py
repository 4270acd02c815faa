"""Adopts and captures with several configurations, one after the other: `python -m …conformance.adopting FILE…`.

A process of its own, for the reason that `ours` gives; one for all, because starting it takes longer than its work.
"""

import os
import sys

from typer.testing import CliRunner

from cdc_assets.cli.main import app


def run(file: str) -> None:
    """The commands as somebody would type them."""
    for command in (["adopt", "--yes"], ["capture", "--local"]):
        done = CliRunner().invoke(app, [*command, "--config", file], env={"COLUMNS": "220"})
        assert done.exit_code == 0, f"{file}: {' '.join(command)}\n{done.output}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        run(name)
    os._exit(0)
