"""How rates follow size: `python -m benchmarks curves [tasks] [tables] [transactions] [windows]`, all of them by default.

| Curve | Varies | Measures |
|---|---|---|
| `tasks` | Spark tasks at once: 1, 2, 4 | snapshot and backlog of one table |
| `tables` | 1, 10, 100, 1,000 captured tables that share the same number of rows | snapshot and backlog of all |
| `transactions` | change rows of a transaction: 2 (one update) to 5,000,000 | backlog of one table |
| `windows` | windows before: 1 to 20,000 | processor time of a window's commits, and memory (`commit_cost`) |

Each point has a process and a Spark session of its own, a pass to warm up, and prints the median of the passes after it
with the load average, and the median of their processor seconds, of which the server's are left out. The driver, the tasks and the server share
this machine. So that all of it ends within half an hour on a quiet one, a thousand tables are passed once after the warm-up, and
transactions of one update are a tenth as many rows. `--short` takes a quarter of that: fewer rows, fewer windows, and no transaction of
5,000,000. `--write` puts the tables into benchmarks/README.md.
"""

import argparse
import multiprocessing as mp
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import commit_cost
from benchmarks.document import write_table
from benchmarks.ending import ends_with_us
from benchmarks.main_job import Bench, server_process
from benchmarks.passes import load_average, spread
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.capture.capture import Capture
from cdc_assets.defs.spark import SparkResource

SHORT = {"rows": 200_000, "updates": 100_000, "most": 1_000_000, "windows": 2_500}
"""Sizes of a short pass."""
CURVES = ("tasks", "tables", "transactions", "windows")
TASKS, TABLES, TRANSACTIONS = (1, 2, 4), (1, 10, 100, 1_000), (2, 200, 20_000, 1_000_000, 5_000_000)


def point(rows: int, updates: int, each: int, repeats: int, *, tables: int = 1, tasks: int = 0) -> list[str]:
    """Snapshot and backlog of one size: rows a second, and what they took.

    Args:
        rows: of all tables together.
        updates: of all tables together.
        each: updates of a transaction.
        repeats: passes.
        tables: among which rows and updates are divided.
        tasks: at once; 0 for the cores.
    """
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        server_process(tables) as (port, password, load),
    ):
        folder, server = Path(name), next(child.pid for child in mp.active_children() if child.pid)
        resource = SparkResource(master=f"local[{tasks}]") if tasks else SparkResource()
        bench = Bench(resource.runner(), folder, port, password, server, repeats)
        load("table", max(rows // tables, each))
        found = tables * max(rows // tables, each)
        start = folder / "snapshotted"
        passes = [bench.timed_job(bench.runner, None, Capture.snapshot) for _ in range(repeats)]
        passes.append(bench.run(bench.runner, start, Capture.snapshot))  # the backlog begins there
        lines = [_line("snapshot", found, passes)]
        transactions = max(1, updates // tables // each)
        load("changes", transactions, each)
        changed = 2 * tables * transactions * each
        passes = [bench.timed_job(bench.runner, start, Capture.stream) for _ in range(repeats + 1)]
        stop_spark()
        return [*lines, _line("backlog", changed, passes)]


def _line(name: str, rows: int, passes: Sequence[tuple[float, float]]) -> str:
    seconds, processor = zip(*passes[1:], strict=True)
    return f"{name} | {rows:,} | {spread(list(seconds))} | {median(processor):.1f} | {rows / median(seconds):,.0f}"


def apart(work: Callable[[], list[str]]) -> list[str]:
    """The result of some work in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
        try:
            return pool.submit(_ending, work).result()
        except BaseException:
            for process in mp.active_children():
                process.terminate()  # leaving the block would wait for it
            raise


def _ending(work: Callable[[], list[str]]) -> list[str]:
    with ends_with_us():
        return work()


def curve(name: str, sizes: Sequence[int], made: Callable[[int], Callable[[], list[str]]]) -> Iterator[str]:
    """The points of one curve as a Markdown table."""
    yield from ("", f"| {name} | Load average | | Rows | s | Processor s | rows/s |", "|---|---|---|---|---|---|---|")
    for size in sizes:
        load = load_average()
        for line in apart(made(size)):
            yield f"| {size:,} | {load} | {line} |"


def curves(given: argparse.Namespace) -> Iterator[str]:
    """All lines of the wanted curves."""
    wanted, sized = given.curves or CURVES, partial(point, given.rows)
    each = min(100, given.updates)

    def upto(sizes: Sequence[int]) -> list[int]:
        return [size for size in sizes if size <= given.most]

    def of_tables(size: int) -> Callable[[], list[str]]:
        repeats = given.repeats if size < 1_000 else 1
        return partial(sized, given.updates, min(each, given.updates // size), repeats, tables=size)

    def of_rows(size: int) -> Callable[[], list[str]]:
        updates = given.updates if size > 2 else max(1, given.updates // 10)
        return partial(sized, updates, size // 2, given.repeats)

    if "tasks" in wanted:
        yield from curve(
            "Tasks", upto(TASKS), lambda size: partial(sized, given.updates, each, given.repeats, tasks=size)
        )
    if "tables" in wanted:
        yield from curve("Tables", upto(TABLES), of_tables)
    if "transactions" in wanted:
        yield from curve("Change rows of a transaction", upto(TRANSACTIONS), of_rows)
    if "windows" in wanted:
        yield from ("", *commit_cost.HEAD)
        yield from commit_cost.points(given.windows)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", nargs="*", help=", ".join(CURVES))
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of all tables of a point together")
    parser.add_argument("--updates", type=int, default=500_000, help="updates of a point")
    parser.add_argument("--repeats", type=int, default=3, help="measured passes of a point")
    parser.add_argument("--most", type=int, default=5_000_000, help="leave larger points out")
    parser.add_argument("--windows", type=int, default=20_000, help="windows of the last curve")
    parser.add_argument("--short", action="store_true", help="a short pass; other options change its sizes")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    if parser.parse_args().short:
        parser.set_defaults(**SHORT)
    given = parser.parse_args()
    if unknown := set(given.curves) - set(CURVES):
        parser.error(f"no such curve: {', '.join(sorted(unknown))}; there are {', '.join(CURVES)}")
    lines = []
    for line in curves(given):
        print(line, flush=True)
        lines.append(line)
    if given.write:
        write_table(Path(__file__).with_name("README.md"), "make bench-curves", lines)
