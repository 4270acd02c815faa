"""The benchmarks run: tiny sizes, no look at the figures."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.__main__ import SUBJECTS
from benchmarks.document import FIGURES, write_table
from benchmarks.latency import line
from benchmarks.main_job import Memory, names
from benchmarks.passes import Times, run_process, spread
from benchmarks.versus import CONNECTOR, HEAD, LOCAL, OURS, RAW, Phase

ROOT = Path(__file__).parents[1]


def bench(*arguments: str) -> str:
    """What `python -m benchmarks` prints."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_a_subject_it_tells_them() -> None:
    told = bench()
    assert all(name in told for name in SUBJECTS)


@pytest.mark.parametrize("name", SUBJECTS)
def test_each_subject_can_be_run(name: str) -> None:
    assert callable(import_module(f"benchmarks.{name}").main)


def test_commands_of_the_make_file_exist() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    named = {line.split()[3] for line in lines if "-m benchmarks " in line}
    assert named == {"versus", "kafka", "curves"} <= set(SUBJECTS)


@pytest.mark.conformance
def test_side_by_side_without_the_others() -> None:
    told = bench("versus", "--ours", "--rows", "300", "--updates", "100", "--repeats", "1")
    for phase in ("snapshot", "backlog"):
        assert [line.split(" | ")[1] for line in told.splitlines() if line.startswith(f"| {phase} ")] == [
            OURS,
            LOCAL,
            RAW,
        ]


@pytest.mark.conformance
def test_side_by_side() -> None:
    told = bench("versus", "--rows", "300", "--updates", "100", "--repeats", "1")
    assert told.count(CONNECTOR) == told.count("JDBC by hand") == 2


@pytest.mark.conformance
def test_a_curve() -> None:
    told = bench(
        "curves",
        "transactions",
        "windows",
        "--rows",
        "50",
        "--updates",
        "40",
        "--repeats",
        "1",
        "--most",
        "2",
        "--windows",
        "100",
    )
    assert "| 2 | " in told
    assert told.count("backlog | 8 |") == 1, "of so small transactions a tenth of the updates, and two change rows each"
    assert re.search(r"\| 100 \| [\d.]+ ms \|", told)


def test_ratios_are_those_of_medians() -> None:
    times = {OURS: Times([2, 4, 3], [1, 1, 1], [0.5, 0.5, 0.5]), CONNECTOR: Times([30, 6, 6], [5], [9])}
    ours, other = Phase("snapshot", 1000, 1000, None, lambda _: None, None, "", times).lines()
    assert (
        ours
        == "| snapshot | cdc-assets, Spark | 3.00 (2.00–4.00) | 333 | 1.0 | 1.00 (1.00–1.00) | 1,000 | 1.0 | 500.0 |"
    )
    assert other.split(" | ")[4] == "2.0"
    assert other.split(" | ")[7] == "5.0"
    assert spread([]) == ""


@pytest.mark.parametrize(
    ("document", "name"), [(ROOT / "README.md", "make bench"), (FIGURES, "latency"), (FIGURES, "cold start")]
)
def test_the_table_is_put_between_its_marks(tmp_path: Path, document: Path, name: str) -> None:
    text, copy = document.read_text(), tmp_path / "README.md"
    copy.write_text(text)
    for lines in (["old"], [*HEAD, "| new |"]):
        write_table(copy, name, lines)
    before, after = text.split(f"<!-- begin: {name} -->\n")[0], text.split(f"<!-- end: {name} -->")[1]
    table = "\n".join([*HEAD, "| new |"])
    assert copy.read_text() == f"{before}<!-- begin: {name} -->\n{table}\n<!-- end: {name} -->{after}"


def test_a_document_without_marks_is_left_alone(tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    copy.write_text("<!-- begin: make bench -->\n")
    with pytest.raises(ValueError, match="make bench"):
        write_table(copy, "make bench", ["new"])
    assert copy.read_text() == "<!-- begin: make bench -->\n"


def test_a_line_of_latencies_tells_the_slowest_of_a_hundred() -> None:
    seconds = [number / 100 for number in range(100, 0, -1)]
    assert line("followed", seconds) == "| followed | 100 | 0.51 s | 0.99 s | 0.01 s | 1.00 s |"


def test_a_contender_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        run_process("jdbc", {}, tmp_path)


def test_names_of_tables() -> None:
    assert names(3) == ["measurements", "measurements2", "measurements3"]
    assert Memory(0).python == 0
