"""Compares the content of the lake's tables with what the manifest recorded.

The manifest has a `Mark` for each table: the last committed window and the number of rows. A mark is recorded after its
commit, so a table holds at least what its mark says, also after a crash in between. It holds less only if events were
removed: a folder was removed or replaced by an older copy, a commit of Delta's log was lost or emptied, a data file is
missing or truncated.

*What is compared.* `matches_mark` reads one small file, Delta's newest commit, and queries the size of the files it
names, which a power cut damages first. This can show that a table looks right, never that it is wrong: after a log
clean-up, a compaction or a commit later than the mark a sound table differs too. `examine` compares everything:
application transaction, number of rows, and each data file's size. It runs for the tables that differ, and for others
as time allows, least recently examined first. So a start takes bounded time for any number of tables, and every table
is examined in time. Who only looks records nothing: he takes turns of his own (`Turns`), which begin anywhere.

*No false alarms.* Joining files keeps application transactions and rows, and vacuum removes files that the newest version
does not name. Rows that another program has deleted on purpose are not missed, and exactly these; and those that it has appended
belong to none of ours: what is lost besides is found, as far as the log has the commits since the mark. Where it has them no longer,
fewer rows than were counted are a loss, too, since nothing shows that they are not; so other programs are to keep the log (`delta_log`). A run may commit while
somebody looks: rows, files and the log are compared as of the version that was opened. A table may be right by these numbers
and hold rows twice: that is found in its log (`foreign`). File contents are not read.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable

from cdc_assets.core.lsn import LSN_WIDTH, ZERO_LSN, Lsn, Position
from cdc_assets.errors import InvalidValueError, LakeAwayError, LakeError
from cdc_assets.lake.commits import read_commit
from cdc_assets.lake.expected import Expected, counted_to, expected_rows
from cdc_assets.lake.location import STORE_ERRORS, plain, trouble
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.presence import damaged
from cdc_assets.lake.replacing import OURS
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.lake.topics import TopicTables

_THREADS = 8
"""Number of parallel requests to a remote store."""

_READ = 0
"""Operation in the position of READ events; a snapshot writes many of them at one LSN, in several commits."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of data in a table.

    Args:
        what: description for people.
        after: exclusive start of the interval that may be incomplete.
        until: inclusive end; None: the table's position.
        readable: whether Delta can read the table, so that it can receive new events.
        damaged: data files that are missing or truncated.
        is_put_back: whether another program has put an older version in place, whatever number of a window the table has kept.
    """

    directory: str
    what: str
    after: Lsn = ZERO_LSN
    until: Lsn | None = None
    readable: bool = True
    damaged: tuple[str, ...] = ()
    is_put_back: bool = False


@dataclass(frozen=True, slots=True)
class Examined:
    """Result for an examined table; `mark` describes its current content, None if there is no such table."""

    mark: Mark | None
    loss: Loss | None = None


class Turns:
    """Which tables somebody who only looks has examined last. What lacked something is examined each time until it does not."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._turn, self._begin = 0, uuid4().int
        self.lacking: frozenset[str] = frozenset()
        """Tables that lacked something when they were last examined."""

    def of(self, directory: str) -> tuple[int, int]:
        """What is to be examined earlier has less; of what never was, something else each time that turns begin."""
        return self._last.get(directory, 0), hash((self._begin, directory))

    def note(self, found: Mapping[str, Examined]) -> None:
        """Tables that were examined."""
        self._turn += 1
        self._last.update(dict.fromkeys(found, self._turn))
        lacking = {name for name, result in found.items() if result.loss is not None}
        self.lacking = (self.lacking - found.keys()) | lacking


def audit(
    tables: DeltaTables,
    marks: Mapping[str, Mark],
    directories: Iterable[str],
    *,
    whole: Collection[str] = (),
    seconds: float | None = None,
    turns: Turns | None = None,
    first_sight: bool = True,
    derived: bool = False,
) -> dict[str, Examined]:
    """Examine the tables that differ from their mark, and others while time remains.

    Args:
        tables: the lake's Delta tables.
        marks: recorded content of the tables.
        directories: tables to check; nothing is expected of a table without a mark.
        whole: tables that are examined in any case.
        seconds: time limit for tables that look right; None examines all.
        turns: of somebody who records nothing; else the marks say what was examined when.
        first_sight: whether newest commits of all tables are read to find those that differ; without it time limits all.
        derived: see `examine`.

    Returns:
        The examined tables.
    """
    names = sorted(directories, key=lambda name: (marks[name].examined if name in marks else 0, name))
    names = sorted(names, key=turns.of) if turns else names
    whole = turns.lacking.union(whole) if turns else whole
    with ThreadPoolExecutor(_THREADS) as pool:

        def suspected(name: str) -> bool:
            return name in whole or name not in marks or (first_sight and not matches_mark(tables, name, marks[name]))

        suspects = names if seconds is None else [
            name for name, found in zip(names, pool.map(suspected, names), strict=True) if found
        ]  # fmt: skip
        examined = dict(
            zip(suspects, pool.map(lambda name: examine(tables, name, marks.get(name), derived), suspects), strict=True)
        )
        deadline = time.monotonic() + (seconds or 0.0)

        def in_time(name: str) -> Examined | None:
            return examine(tables, name, marks[name], derived) if time.monotonic() < deadline else None

        others = [name for name in names if name not in examined]
        found = zip(others, pool.map(in_time, others), strict=True)
        examined |= {name: result for name, result in found if result is not None}
    if turns:
        turns.note(examined)
    return examined


def matches_mark(tables: DeltaTables, directory: str, mark: Mark) -> bool:
    """Whether a table's newest commit is the marked one, complete, with all its files."""
    location = tables.location
    try:
        commit = read_commit(location, directory, mark.version)
        if commit is None or read_commit(location, directory, mark.version + 1) is not None:
            return False
        files = location.existing(directory)
        same = commit.transactions.get(tables.capture) == mark.window
        rewritten = OURS in commit.about if commit.removed else not commit.is_plain  # what others rewrite may lack rows
        changed = tables.capture not in commit.transactions and rewritten
        return (same or changed) and not damaged(files, commit.sizes)
    except (LakeError, *STORE_ERRORS):
        return False


def examine(tables: DeltaTables, directory: str, mark: Mark | None, derived: bool = False) -> Examined:
    """Compare a table's transaction, rows and files with its mark; without a mark only check its files.

    Args:
        derived: whether the table is made of another one step by step, so that one that another program has put back to an older version
            lacks what was made since, and cannot be built upon.
    """
    tables.forget(directory)  # a cached handle does not notice that its table was removed
    try:
        handle = tables.open(directory)
        if handle is None:
            return Examined(None, Loss(directory, "is gone") if mark else None)
        return _compared(tables, directory, mark, handle, derived)
    except (LakeError, *STORE_ERRORS) as error:
        what = f"{tables.location.uri(directory)} cannot be read"
        if isinstance(away := trouble(what, error, ""), LakeAwayError):
            raise away from error
        return Examined(None, Loss(directory, f"cannot be read ({plain(error.__cause__ or error)})", readable=False))


def _compared(tables: DeltaTables, directory: str, mark: Mark | None, handle: DeltaTable, derived: bool) -> Examined:
    actions = pa.table(handle.get_add_actions(flatten=True))
    sizes = dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))
    broken = damaged(tables.location.existing(directory), sizes)
    window = handle.transaction_version(tables.capture)
    counts = actions["num_records"].to_pylist()
    rows = sum(count or 0 for count in counts)
    number = -1 if window is None else window
    counted = counted_to(tables, directory, handle.version(), number)
    now = Mark(number, handle.version(), rows, counted=counted)
    now = now if mark is None else now.behind(mark)
    losses = []
    if broken:
        losses.append(_of_files(directory, broken, actions))
    if mark is not None and now.window < mark.window:
        what = f"holds windows up to {now.window}, but {mark.window} was committed: the newest commits of its log are lost, or the table was replaced"
        losses.append(Loss(directory, what, _shown_until(actions, broken)))
    elif mark is not None and None not in counts:
        expected = expected_rows(tables, directory, mark, handle.version())
        if derived and expected.is_put_back:
            what = "was put back to an older version by another program"
            losses.append(Loss(directory, what, is_put_back=True))
        elif rows < expected.rows:
            losses.append(Loss(directory, _fewer(rows, expected)))
    return Examined(now, _joined(losses))


def _fewer(rows: int, expected: Expected) -> str:
    found = f"has {rows} events in place of {expected.rows}"
    if expected.is_sure:
        return f"{found}: a commit of its log is lost"
    return f"{found}, and its log has not all commits since these were counted: nobody can show that the others were removed on purpose"


def _of_files(directory: str, broken: Mapping[str, str], actions: pa.Table) -> Loss:
    bounds = [(low, high) for path, low, high in _bounds(actions) if path in broken]
    known = [(low, high) for low, high in bounds if low and high]
    complete = len(known) == len(bounds)
    after = min(_before(low) for low, _ in known) if complete else ZERO_LSN
    until = max(_lsn(high) for _, high in known) if complete else None
    path, what = next(iter(broken.items()))
    others = f" and {len(broken) - 1} more files" if len(broken) > 1 else ""
    return Loss(directory, f"lacks data: {path} is {what}{others}", after, until, damaged=tuple(broken))


def _shown_until(actions: pa.Table, broken: Collection[str]) -> Lsn:
    """LSN up to which the remaining events are complete: windows hold whole transactions, but READs of one LSN may span
    several commits, and changes up to it may follow them."""
    files = [(low, high) for path, low, high in _bounds(actions) if low and high and path not in broken]
    if not files:
        return ZERO_LSN
    last = max(high for _, high in files)
    if _operation(last) != _READ:
        return _lsn(last)
    changes = [position for file in files for position in file if _operation(position) != _READ]
    return _lsn(max(changes)) if changes else _before(min(low for low, _ in files))


def _bounds(actions: pa.Table) -> Iterable[tuple[str, str | None, str | None]]:
    """Path, least and greatest position of each file, if the log has these statistics."""
    nothing = [None] * actions.num_rows
    columns = [
        actions[name].to_pylist() if name in actions.column_names else nothing
        for name in ("path", "min.position", "max.position")
    ]
    return zip(*columns, strict=True)


def _lsn(position: str) -> Lsn:
    """The LSN of a position; of a batch of another connector's events, which has none, the least."""
    try:
        return Lsn.parse(position[:LSN_WIDTH])
    except InvalidValueError:
        return ZERO_LSN


def _before(position: str) -> Lsn:
    lsn = int(_lsn(position))
    return Lsn.from_int(lsn - 1) if lsn else ZERO_LSN


def _operation(position: str) -> int | None:
    try:
        return Position.parse(position).operation
    except InvalidValueError:
        return None


def _joined(losses: list[Loss]) -> Loss | None:
    if len(losses) < 2:
        return losses[0] if losses else None
    first, second = losses
    return replace(
        second, what=f"{first.what}; it {second.what}", after=min(first.after, second.after), damaged=first.damaged
    )


def unknown_commits(tables: TopicTables, directory: str, window: int) -> list[tuple[Lsn, Lsn] | None]:
    """LSN ranges of a table's commits from this window on, oldest first; None for a commit that is not a stream window.

    Raises:
        LakeError: Delta cannot read the table.
    """
    handle = tables.open(directory)
    entries = [] if handle is None else handle.history()
    found = sorted((int(entry["window_id"]), entry) for entry in entries if int(entry.get("window_id", -1)) >= window)
    return [_range_of(entry) for _, entry in found]


def _range_of(entry: Mapping[str, str]) -> tuple[Lsn, Lsn] | None:
    if "from_lsn" not in entry or "to_lsn" not in entry:
        return None
    return Lsn.parse(entry["from_lsn"]), Lsn.parse(entry["to_lsn"])


def newest_lsn(tables: TopicTables, directory: str) -> Lsn | None:
    """The greatest LSN of a table's events, from the statistics in its log."""
    handle = tables.open(directory)
    bounds = [] if handle is None else list(_bounds(pa.table(handle.get_add_actions(flatten=True))))
    return max((_lsn(high) for _, _, high in bounds if high), default=None)
