"""The benchmarks run: tiny sizes, no look at the figures."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.__main__ import SUBJECTS
from benchmarks.document import FIGURES, write_table
from benchmarks.latency import line
from benchmarks.main_job import Recorder, names
from benchmarks.measures import Measures
from benchmarks.passes import Times, run_process, spread
from benchmarks.processes import Memory
from benchmarks.versus import CONNECTOR, HEAD, OURS, RAW, Phase, ours, slower
from benchmarks.witness import KINDS, LOCAL, SPARK, THREADS, Kind, Witness, noted
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.jobs import Job
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.shop import open_shop

ROOT = Path(__file__).parents[1]


def bench(*arguments: str) -> str:
    """What `python -m benchmarks` prints."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_a_subject_it_tells_them() -> None:
    told = bench()
    assert all(name in told for name in SUBJECTS)


@pytest.mark.long
@pytest.mark.parametrize("name", SUBJECTS)
def test_each_subject_can_be_run_and_tells_its_options(name: str) -> None:
    assert callable(import_module(f"benchmarks.{name}").main)
    assert "show this help message" in bench(name, "--help")


def test_commands_of_the_make_file_exist() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    named = {line.split()[3] for line in lines if "-m benchmarks " in line}
    assert named == {"versus", "kafka", "curves"} <= set(SUBJECTS)


TINY = ("--rows", "300", "--updates", "12000", "--repeats", "1")
"""A backlog of more change rows than a task may read without Spark."""


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_side_by_side_without_the_others() -> None:
    told = bench("versus", "--ours", *TINY)
    for phase in ("snapshot", "backlog"):
        rows = [line.split(" | ")[1] for line in told.splitlines() if line.startswith(f"| {phase} ")]
        assert rows == [*map(ours, KINDS), RAW, "**cdc-assets**, Spark"]


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_side_by_side() -> None:
    told = bench("versus", *TINY)
    assert told.count("JDBC by hand") == 2
    assert told.count(CONNECTOR) == told.count("PySpark JDBC") == 4, "in both tables"
    assert "inf" not in told


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_what_spark_costs() -> None:
    sizes = ["--rows", "300", "--passes", "1", "--starts", "1", "--streams", "1", "--stream-rows", "2", "--idle", "1"]
    told = bench("cold_start", *sizes, "--no-dagster")
    assert "| | Spark | threads | `--local` | Spark − threads |" in told
    for measure in (
        "first change by a command, s",
        "its stream, median s of a row",
        "a day of one change a minute, processor s",
    ):
        (row,) = [line for line in told.splitlines() if line.startswith(f"| {measure} ")]
        assert "–" not in row


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


def test_ratios_are_those_of_medians_and_read_forwards() -> None:
    times = {
        OURS: Times([2, 4, 3], [1, 1, 1], [0.5, 0.5, 0.5]),
        RAW: Times([], [0.5], [0.25]),
        CONNECTOR: Times([30, 6, 6], [11], [9]),
    }
    phase = Phase("snapshot", 1000, 1000, None, lambda _: None, None, "", times)
    own, raw, other = (line.split(" | ") for line in phase.lines())
    assert own[2:] == ["3.00 (2.00–4.00)", "333", "", "1.00 (1.00–1.00)", "1,000", "", "500.0 |"]
    assert raw[2:] == ["–", "–", "–", "0.50 (0.50–0.50)", "2,000", "2.0 times faster", "250.0 |"]
    assert (other[4], other[7]) == ("2.0 times slower", "11 times slower")
    assert list(phase.summary()) == [
        "| snapshot | **cdc-assets**, Spark | 3.00 s | 333 events/s | 1.00 s | 1,000 events/s |",
        "| snapshot | Debezium connector, null sink | 6.00 s | 2.0 times slower | 11.00 s | 11 times slower |",
    ]
    assert (slower(1.04), slower(9.96), spread([])) == ("1.0 times slower", "10 times slower", "")


def test_differences_are_those_of_neighbours() -> None:
    found = Measures(("Spark", "threads"))
    for spark, threads in [(3.0, 1.0), (10.0, 9.5), (4.0, 1.0)]:
        found.add("Spark", {"a start, s": spark})
        found.add("threads", {"a start, s": threads})
    assert found.head()[0] == "| | Spark | threads | Spark − threads |"
    assert list(found.lines()) == [
        "| a start, s | 4.00 (3.00 to 10.00) | 1.00 (1.00 to 9.50) | +2.00 (+0.50 to +3.00) |"
    ]


def witnessed(*processes: int) -> list[str]:
    """What is noted of a job, one of whose tasks ran in each of these processes."""
    seen: list[str] = []
    tasks = iter(processes)
    with pytest.MonkeyPatch.context() as moved:
        moved.setattr("benchmarks.witness.os.getpid", lambda: next(tasks, os.getppid()))
        Witness(LocalRunner(1), lambda ran: seen.append(noted(ran))).run(abs, [-1] * len(processes), Job("window"))
    return seen


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("elsewhere", [0, 1, 2])
def test_no_row_is_named_by_where_a_task_did_not_run(kind: Kind, elsewhere: int) -> None:
    driver = os.getppid()
    lines = witnessed(*[1] * elsewhere, *[driver] * (2 - elsewhere))
    if elsewhere == (2 if kind.on_spark else 0):
        kind.require(lines)
        return
    with pytest.raises(RuntimeError, match=f"{2 - elsewhere} of 2 tasks ran in the driver's process"):
        kind.require(lines)


def test_a_row_without_a_task_is_refused() -> None:
    for kind in (SPARK, THREADS, LOCAL):
        with pytest.raises(RuntimeError, match="0 of 0 tasks"):
            kind.require([])


def test_a_witness_stands_in_for_its_runner() -> None:
    seen: list[object] = []
    witness = Witness(LocalRunner(3), seen.append)
    assert witness.run(abs, [-1, 2, -3], Job("window")) == [1, 2, 3]
    assert (witness.parallelism, seen) == (3, [{os.getpid(): 3}])


@pytest.mark.parametrize("stands_in", [lambda runner: Witness(runner, print), Recorder], ids=["witness", "recorder"])
def test_what_stands_in_for_a_runner_has_all_of_it(stands_in: Callable[[Any], Any]) -> None:
    runner = stands_in(LocalRunner(3))
    runner.get_ready()
    assert (runner.parallelism, runner.may_start_twice) == (3, False)


@pytest.mark.long
def test_a_command_with_a_witness_does_what_it_does_without(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with open_shop(tmp_path) as shop:
        shop.add_customers(5)
        command = [sys.executable, "-m", "benchmarks.command", notes, "capture", "--local"]
        done = subprocess.run(command, env=os.environ | shop.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert shop.differences() == {}
    LOCAL.require(notes.read_text().splitlines())


def runs(process: psutil.Process, program: str = "") -> bool:
    """Whether a process is at work, and with this program."""
    with suppress(psutil.Error):  # a dead one has no command line
        dead = not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        return not dead and (not program or program in [process.name(), *process.cmdline()])
    return False


def end_by_sigterm(arguments: Sequence[str], program: str, folder: Path) -> None:
    """Start a benchmark, end it when it has started a program, and look for what it left."""
    log, known = folder / "log", set[psutil.Process]()
    with log.open("wb") as told:
        command = [sys.executable, "-m", "benchmarks", *arguments]
        environment = os.environ | {"TMPDIR": str(folder)}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=told, stderr=told)

    def has_started() -> bool:
        assert process.poll() is None, log.read_text()
        known.update(psutil.Process(process.pid).children(recursive=True))
        return any(runs(one, program) for one in known)

    try:
        wait_until(has_started, 240, log.read_text, 0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM, log.read_text()
        wait_until(lambda: not any(map(runs, known)), 20, lambda: [one for one in known if runs(one)])
        assert not list(folder.glob("bench-*")), "its files are gone, too"
    finally:
        for one in filter(runs, known):
            one.kill()
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.spark
def test_sigterm_leaves_neither_server_nor_spark(tmp_path: Path) -> None:
    sizes = ["--rows", "1000", "--updates", "100", "--repeats", "50"]
    end_by_sigterm(["main_job", *sizes], "java", tmp_path)


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_sigterm_leaves_no_command_and_no_contender(tmp_path: Path) -> None:
    for contender in ("benchmarks.command", "benchmarks.connector_passes"):
        end_by_sigterm(["versus", *TINY], contender, tmp_path)


@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_sigterm_leaves_no_broker(tmp_path: Path) -> None:
    end_by_sigterm(["kafka", *TINY], "java", tmp_path)


@pytest.mark.parametrize(
    ("document", "name"),
    [(ROOT / "README.md", "make bench"), (FIGURES, "make bench"), (FIGURES, "latency"), (FIGURES, "cold start")],
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
