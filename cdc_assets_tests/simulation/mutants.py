"""Whether the world can fail: `python -m cdc_assets_tests.simulation.mutants [--seeds N] [--only TEXT]`.

Each mutant is the product with one thought left out: a fence that is not asked, a number that is not burnt, two commits in another
order (`safeguards`); or it has a severe fault of an earlier state again (`former_faults`). It is copied elsewhere, changed there, and
histories are played until one fails. A mutant that no history finds says that the world cannot express what the thought is for, or
that nobody needs it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cdc_assets
from cdc_assets_tests.simulation.former_faults import FORMER_FAULTS
from cdc_assets_tests.simulation.safeguards import MUTANTS

FIRST = 2


def _found(tree: Path, seeds: int) -> tuple[int, str] | None:
    """The first seed that fails, and how."""
    environment = os.environ | {
        "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'standin'}",
        "CDC_SIMULATE": f"{FIRST}:{FIRST + seeds}",
    }
    test = tree / "cdc_assets_tests" / "simulation" / "test_simulation.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--timeout=0",  # a busy machine proves nothing; whoever is stuck is told by the scheduler
        "--tb=line",
        "-k",
        "law_holds",
        str(test),
    ]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if "Failed: seed " in line:
            number, _, how = line.partition("Failed: seed ")[2].partition(": ")
            return int(number), how
    return None if done.returncode == 0 else (-1, done.stdout[-400:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="histories until a mutant is given up")
    parser.add_argument("--only", default="", help="those whose description holds this text")
    options = parser.parse_args()
    root = Path(cdc_assets.__file__).parent.parent
    for mutant in (*MUTANTS, *FORMER_FAULTS):
        if options.only not in mutant.what:
            continue
        with tempfile.TemporaryDirectory() as folder:
            tree, begun = Path(folder), time.monotonic()
            for name in ("cdc_assets", "cdc_assets_tests", "standin"):
                shutil.copytree(root / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(root / "pyproject.toml", tree)
            for name, before, after in mutant.edits:
                path = tree / "cdc_assets" / name
                path.write_text(path.read_text().replace(before, after))
            found = _found(tree, options.seeds)
        told = "not found" if found is None else f"seed {found[0]}: {found[1][:110]}"
        print(f"| {mutant.what} | {mutant.path} | {told} | {time.monotonic() - begun:.0f} s |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
