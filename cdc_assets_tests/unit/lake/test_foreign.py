"""Rewrites of other programs that put rows in twice are found and undone; whoever appends or deletes is told of."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from cdc_assets.core.one_by_one import OneByOne
from cdc_assets.lake import foreign
from cdc_assets.lake.audit import audit, matches_mark
from cdc_assets.lake.expected import settled
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.foreign import scan_foreign
from cdc_assets.lake.joining import JoinTask, join_topic_files
from cdc_assets.lake.location import Location
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.positions import doubled_rows, keep_once
from cdc_assets.lake.replacing import Replacement, replace_files
from cdc_assets.lake.tables import arrow_schema
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.watch import ForeignWatch
from cdc_assets_tests.unit.lake.writing import batch_of, join_all, nobody_else, schema_of, write

SCHEMA = schema_of(id=pa.int32())


@pytest.fixture
def tables(tmp_path: Path) -> TopicTables:
    made = TopicTables(Location(str(tmp_path)), "shop")
    for window in range(1, 5):
        append(made, window)
    return made


def append(tables: TopicTables, window: int) -> None:
    assert tables.commit("topic", SCHEMA, write(tables, SCHEMA, window, {"id": window}, None), window, {})


def handle_of(tables: TopicTables) -> DeltaTable:
    return DeltaTable(tables.location.uri("topic"))


def positions(tables: TopicTables) -> list[tuple[str, bool]]:
    rows = handle_of(tables).to_pyarrow_table().to_pylist()
    return sorted((row["position"], row["value"] is None) for row in rows)


def expected(until: int) -> list[tuple[str, bool]]:
    return [(f"{window:04d}/{place:04d}", place == 1) for window in range(1, until + 1) for place in (0, 1)]


def stale(tables: TopicTables) -> None:
    """A rewrite that was planned before ours and is committed after it."""
    late = handle_of(tables)
    assert join_all(tables, "topic")
    late.optimize.compact()


def cleaned(tables: TopicTables) -> None:
    """A checkpoint is written, and the log before it is gone."""
    handle_of(tables).create_checkpoint()
    for version in range(handle_of(tables).version()):
        (Path(tables.location.root) / "topic" / "_delta_log" / f"{version:020d}.json").unlink()
    tables.forget("topic")


def watch(tables: TopicTables) -> ForeignWatch:
    return ForeignWatch(tables, OneByOne(), nobody_else)


def test_a_late_rewrite_is_found_and_undone(tables: TopicTables) -> None:
    stale(tables)
    assert len(positions(tables)) == 16
    version = handle_of(tables).version()
    [found] = scan_foreign(tables, "topic", 0).commits
    assert (found.kind, found.rows, found.version) == ("doubled", 8, version)
    assert str(found) == f"version {version} of topic, OPTIMIZE of another program, has put 8 rows in a second time"

    looking = watch(tables)
    assert looking.check(["topic"]) == {"topic": [found]}
    assert positions(tables) == expected(4)
    assert tables.reached("topic") == 4
    assert looking.check(["topic"]) == {}
    assert not scan_foreign(tables, "topic", 0).commits, "it is undone"
    append(tables, 5)
    assert positions(tables) == expected(5)


def test_what_is_rewritten_in_turn_stays_once_by_its_positions(tables: TopicTables) -> None:
    stale(tables)
    handle_of(tables).optimize.compact()
    assert len(positions(tables)) == 16
    assert set(watch(tables).check(["topic"])) == {"topic"}
    assert positions(tables) == expected(4)
    assert not scan_foreign(tables, "topic", 0).commits


def test_files_that_are_only_described_again_stay_where_that_is_undone(tables: TopicTables) -> None:
    """Statistics that were computed before some of the files were joined: only those are there twice then."""
    files = pa.table(handle_of(tables).get_add_actions()).to_pylist()
    described: list[AddAction | RemoveAction] = [
        AddAction(file["path"], file["size_bytes"], {}, file["modification_time"], False, '{"numRecords": 2}')
        for file in files
    ]
    paths = tuple(sorted(file["path"] for file in files))[:2]
    joined = join_topic_files(JoinTask(tables.location, "topic", paths, arrow_schema(handle_of(tables))))
    assert replace_files(tables, "topic", Replacement(paths, joined.files), nobody_else)
    marks = mark_of(tables)
    handle_of(tables).create_write_transaction(described, "append", handle_of(tables).schema())
    assert len(positions(tables)) == 12
    [found] = watch(tables).check(["topic"])["topic"]
    assert (found.kind, found.rows) == ("doubled", 4)
    assert positions(tables) == expected(4)
    assert not scan_foreign(tables, "topic", 0).commits
    assert audit(tables, marks, ["topic"])["topic"].loss is None


def test_rows_in_files_of_another_program_stay_once(tables: TopicTables) -> None:
    """Such as those that an UPDATE has written, with types that Arrow does not filter."""
    handle_of(tables).update(updates={"window_id": "2"}, predicate="window_id = 2")
    stale(tables)
    handle_of(tables).optimize.compact()
    assert len(positions(tables)) == 16
    watch(tables).check(["topic"])
    assert positions(tables) == expected(4)


def test_where_the_log_is_gone_positions_tell(tables: TopicTables) -> None:
    stale(tables)
    cleaned(tables)
    assert doubled_rows(tables, "topic", OneByOne()) == 8
    looking = watch(tables)
    looking.checked["topic"] = 2
    looking.check(["topic"])
    assert positions(tables) == expected(4)
    assert doubled_rows(tables, "topic", OneByOne()) == 0


def test_a_sound_rewrite_of_another_program_is_no_matter(tables: TopicTables) -> None:
    handle_of(tables).optimize.compact()
    append(tables, 5)
    looking = watch(tables)
    assert looking.check(["topic"]) == {}
    assert looking.checked["topic"] == handle_of(tables).version()
    assert positions(tables) == expected(5)


def test_appends_of_assets_and_of_crashes_raise_no_alarm(tables: TopicTables) -> None:
    rows = pa.Table.from_batches([batch_of(SCHEMA, 0, {"id": 9})])
    properties = CommitProperties(app_transactions=[Transaction("dagster:run:step:out", 0, None)])
    write_deltalake(handle_of(tables), rows, mode="append", commit_properties=properties)
    append(TopicTables(tables.location, "shop"), 5)
    looking = watch(tables)
    assert looking.check(["topic"]) == {}
    assert keep_once(tables, "topic", OneByOne(), nobody_else) == 0


def test_what_others_append_or_delete_is_told_and_stays(tables: TopicTables) -> None:
    rows = pa.Table.from_batches([batch_of(SCHEMA, 77, {"id": 9})])
    write_deltalake(handle_of(tables), rows, mode="append")
    handle_of(tables).delete("window_id = 2")
    texts = [str(found) for found in watch(tables).check(["topic"])["topic"]]
    assert [text.partition(", ")[2] for text in texts] == [
        "WRITE of another program, has appended 1 rows that are not of this capture",
        "DELETE of another program, has removed 2 rows",
    ]
    assert len(positions(tables)) == 7


def test_what_others_commit_in_place_of_what_was_read_is_told(tables: TopicTables) -> None:
    looking = watch(tables)
    assert looking.check(["topic"]) == {}
    append(tables, 5)
    assert looking.check(["topic"]) == {}
    version = handle_of(tables).version()
    (Path(tables.location.root) / "topic" / "_delta_log" / f"{version:020d}.json").unlink()
    append_foreign(tables, 1, 2)
    append(tables, 6)
    [told] = looking.check(["topic"])["topic"]
    assert (told.kind, told.rows, told.version) == ("appended", 2, version)
    assert looking.check(["topic"]) == {}


def renumber(handle: DeltaTable) -> None:
    handle.update(updates={"window_id": "7"}, predicate="window_id = 2")


def merge(handle: DeltaTable) -> None:
    rows = pa.Table.from_batches([batch_of(SCHEMA, 2, {"id": 1})])
    merger = handle.merge(rows, "new.position = old.position", "new", "old")
    merger.when_matched_update({"window_id": "7"}).execute()


def order(handle: DeltaTable) -> None:
    handle.optimize.z_order(["window_id"])


def overwrite(handle: DeltaTable) -> None:
    write_deltalake(handle, pa.Table.from_batches([batch_of(SCHEMA, 77, {"id": 1})]), mode="overwrite")


def go_back(handle: DeltaTable) -> None:
    handle.restore(2)


def replace_all(handle: DeltaTable) -> None:
    rows: list[dict[str, object] | None] = [{"id": 9}] * 8
    write_deltalake(handle, pa.Table.from_batches([batch_of(SCHEMA, 77, *rows)]), mode="overwrite")


@pytest.mark.parametrize(("change", "rows"), [(renumber, 2), (replace_all, 8)])
def test_what_others_change_is_told_though_there_are_as_many_rows_as_before(
    tables: TopicTables, change: Callable[[DeltaTable], None], rows: int
) -> None:
    change(handle_of(tables))
    looking = watch(tables)
    [found] = looking.check(["topic"])["topic"]
    assert (found.kind, found.version) == ("changed", handle_of(tables).version())
    assert str(found).endswith(f"of another program, has changed some of {rows} rows")
    assert looking.check(["topic"]) == {}


@pytest.mark.parametrize(("change", "rows"), [(renumber, 8), (merge, 8), (order, 8), (overwrite, 1), (go_back, 4)])
def test_what_others_do_on_purpose_is_not_undone(
    tables: TopicTables, change: Callable[[DeltaTable], None], rows: int
) -> None:
    change(handle_of(tables))
    version = handle_of(tables).version()
    watch(tables).check(["topic"])
    assert (handle_of(tables).version(), handle_of(tables).to_pyarrow_table().num_rows) == (version, rows)


@pytest.mark.parametrize("change", [renumber, merge, go_back])
def test_a_change_that_was_planned_before_ours_is_refused(
    tables: TopicTables, change: Callable[[DeltaTable], None]
) -> None:
    late = handle_of(tables)
    assert join_all(tables, "topic")
    with pytest.raises(DeltaError):
        change(late)
    assert positions(tables) == expected(4)


@pytest.mark.parametrize("window", [None, 7])
def test_rows_of_users_that_have_no_position_stay(tables: TopicTables, window: int | None) -> None:
    """Where the log is gone, and positions are compared."""
    row = {"position": None, "value": None, "window_id": window}
    stale(tables)
    write_deltalake(handle_of(tables), pa.Table.from_pylist([row, row, row], SCHEMA), mode="append")
    cleaned(tables)
    looking = watch(tables)
    looking.checked["topic"] = 2
    looking.check(["topic"])
    assert handle_of(tables).to_pyarrow_table().num_rows == 8 + 3
    assert join_all(tables, "topic")
    assert handle_of(tables).to_pyarrow_table().num_rows == 8 + 3


def test_rows_of_two_windows_with_one_position_stay(tables: TopicTables) -> None:
    """Such as structures that the topic of schema changes tells of behind one LSN."""
    for window in (5, 6):
        rows = pa.RecordBatch.from_pylist([{"position": "0009/0000", "value": None, "window_id": window}], SCHEMA)
        with TopicWriter(tables.location, "topic", SCHEMA, window) as writer:
            writer.write([rows])
        assert tables.commit("topic", SCHEMA, writer.files, window, {})
    assert join_all(tables, "topic")
    assert keep_once(tables, "topic", OneByOne(), nobody_else) == 0


def test_a_look_that_the_store_does_not_answer_is_repeated(
    tables: TopicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale(tables)
    looking = watch(tables)
    with monkeypatch.context() as away:

        def refused(*_: object) -> DeltaTable:
            raise OSError("Generic S3 error: HTTP error: connection refused")

        away.setattr(foreign, "at_version", refused)
        assert looking.check(["topic"]) == {}
    assert set(looking.check(["topic"])) == {"topic"}
    assert positions(tables) == expected(4)


@pytest.mark.parametrize("why", ["Generic S3 error: HTTP error: connection refused", "Couldn't deserialize thrift"])
def test_positions_that_cannot_be_read_now_are_read_again(
    tables: TopicTables, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Where the log is gone: the store is away, or a page is damaged, behind a footer that could be read."""
    stale(tables)
    cleaned(tables)
    looking = watch(tables)
    looking.checked["topic"] = 2
    with monkeypatch.context() as away:

        def refused(*_: object, **__: object) -> pa.Table:
            raise OSError(why)

        away.setattr(pq.ParquetFile, "read", refused)
        assert looking.check(["topic"]) == {}
    assert set(looking.check(["topic"])) == {"topic"}
    assert positions(tables) == expected(4)


def test_a_sound_rewrite_of_files_without_counts_is_no_doubling(tables: TopicTables) -> None:
    """Whose former files are gone, so that nobody can count their rows any more."""
    handle = handle_of(tables)
    log = Path(tables.location.root) / "topic" / "_delta_log"
    for commit in log.glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            line.get("add", {}).pop("stats", None)
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tables.forget("topic")
    before = handle.file_uris()
    handle_of(tables).optimize.compact()
    for path in before:
        Path(path.removeprefix("file://")).unlink()
    assert not scan_foreign(tables, "topic", 0).commits


# ---- what is missing besides --------------------------------------------------------------------------------------------


def mark_of(tables: TopicTables) -> dict[str, Mark]:
    return dict(tables.fresh_marks())


def lose(tables: TopicTables, window: int) -> None:
    """Take the file of a window out of the log, as a lost commit in its middle does."""
    handle = handle_of(tables)
    [path] = [path for path in pa.table(handle.get_add_actions())["path"].to_pylist() if f"w{window:010d}" in path]
    log = Path(tables.location.root) / "topic" / "_delta_log"
    for commit in sorted(log.glob("*.json")):
        kept = [line for line in commit.read_text().splitlines() if path not in line]
        commit.write_text("\n".join(kept) + "\n")
    tables.forget("topic")


def test_a_rewrite_of_another_program_never_looks_right_at_first_sight(tables: TopicTables) -> None:
    """It may have lost rows, also if it is counted already."""
    handle_of(tables).optimize.compact()
    mark = settled(tables, "topic", mark_of(tables)["topic"])
    assert mark.version == handle_of(tables).version()
    assert not matches_mark(tables, "topic", mark)
    assert audit(tables, {"topic": mark}, ["topic"], seconds=0)["topic"].loss is None


def test_a_deletion_explains_its_own_rows_and_no_others(tables: TopicTables) -> None:
    marks = mark_of(tables)
    handle_of(tables).delete("window_id = 2")
    assert audit(tables, marks, ["topic"])["topic"].loss is None
    lose(tables, 3)
    loss = audit(tables, marks, ["topic"])["topic"].loss
    assert loss is not None
    assert "has 4 events in place of 6" in loss.what


def test_a_deletion_that_is_counted_already_explains_nothing_more(tables: TopicTables) -> None:
    handle_of(tables).delete("window_id = 2")
    examined = audit(tables, mark_of(tables), ["topic"])["topic"].mark
    assert examined is not None
    run = TopicTables(tables.location, "shop")
    run.expect("topic", examined)
    lose(tables, 3)
    append_foreign(tables, 1)
    append(run, 5)
    loss = audit(run, mark_of(run), ["topic"])["topic"].loss
    assert loss is not None
    assert "has 7 events in place of 9" in loss.what


def clean_up(tables: TopicTables) -> None:
    """Another program's checkpoint, with Delta's own clean-up of the log, two days later."""
    for commit in (Path(tables.location.root) / "topic" / "_delta_log").iterdir():
        written = commit.stat().st_mtime - 2 * 86400
        os.utime(commit, (written, written))
    handle_of(tables).create_checkpoint()
    handle_of(tables).cleanup_metadata()
    tables.forget("topic")


def test_a_deletion_is_known_though_others_have_cleaned_the_log_up_by_its_age(tables: TopicTables) -> None:
    """As of a capture that runs by night."""
    marks = mark_of(tables)
    handle_of(tables).delete("window_id = 2")
    handle_of(tables).optimize.compact()
    clean_up(tables)
    assert audit(tables, marks, ["topic"])["topic"].loss is None


def test_what_cannot_be_counted_any_more_is_told_so(tables: TopicTables) -> None:
    """Where somebody wants a short log."""
    marks = mark_of(tables)
    handle_of(tables).delete("window_id = 2")
    handle_of(tables).optimize.compact()
    cleaned(tables)
    loss = audit(tables, marks, ["topic"])["topic"].loss
    assert loss is not None
    assert "has 6 events in place of 8, and its log has not all commits since" in loss.what


def append_foreign(tables: TopicTables, *keys: int, capture: str = "") -> None:
    """Rows of another program, or of an asset."""
    rows = pa.Table.from_batches([batch_of(SCHEMA, 77, {"id": key}) for key in keys])
    properties = CommitProperties(app_transactions=[Transaction(capture, 0, None)]) if capture else None
    write_deltalake(handle_of(tables), rows, mode="append", commit_properties=properties)


@pytest.mark.parametrize("capture", ["", "dagster:run:step:out"])
def test_rows_of_others_stand_for_none_that_are_lost(tables: TopicTables, capture: str) -> None:
    marks = mark_of(tables)
    append_foreign(tables, 1, 2, capture=capture)
    assert audit(tables, marks, ["topic"])["topic"].loss is None
    lose(tables, 3)
    loss = audit(tables, marks, ["topic"])["topic"].loss
    assert loss is not None
    assert "has 8 events in place of 10" in loss.what


def test_own_commits_behind_the_mark_stand_for_none_that_are_lost(tables: TopicTables) -> None:
    marks = mark_of(tables)
    append_foreign(tables, 1)
    append(tables, 5)
    later = mark_of(tables)
    for known in (marks, later):
        assert audit(tables, known, ["topic"])["topic"].loss is None
    lose(tables, 3)
    for known in (marks, later):
        assert audit(tables, known, ["topic"])["topic"].loss is not None


@pytest.mark.parametrize("foreign_too", [False, True])
def test_no_alarm_by_what_is_committed_while_somebody_looks(
    tables: TopicTables, monkeypatch: pytest.MonkeyPatch, foreign_too: bool
) -> None:
    marks = mark_of(tables)
    looking = TopicTables(tables.location, "shop")
    opened, windows = looking.open, iter(range(5, 100))

    def meanwhile(directory: str) -> DeltaTable | None:
        handle = opened(directory)
        append(tables, next(windows))
        if foreign_too:
            append_foreign(tables, 1)
        return handle

    monkeypatch.setattr(looking, "open", meanwhile)
    for _ in range(3):
        assert audit(looking, marks, ["topic"])["topic"].loss is None
    assert next(windows) == 8, "a window was committed in each look"


def test_no_alarm_by_rows_of_others_that_are_counted_already(tables: TopicTables) -> None:
    append_foreign(tables, 1)
    successor = TopicTables(tables.location, "shop")
    assert successor.committed("topic", 4)
    marks = mark_of(successor)
    assert marks["topic"].rows == 9
    assert audit(successor, marks, ["topic"])["topic"].loss is None


def test_no_alarm_after_rows_that_were_twice_are_once_again(tables: TopicTables) -> None:
    stale(tables)
    append(tables, 5)
    marks = mark_of(tables)
    assert marks["topic"].rows == 18
    watch(tables).check(["topic"])
    found = audit(tables, marks, ["topic"])["topic"]
    assert (found.loss, found.mark and found.mark.rows) == (None, 10)
    shutil.rmtree(tables.location.root)


def test_no_alarm_after_positions_have_told_what_was_there_twice(tables: TopicTables) -> None:
    stale(tables)
    append(tables, 5)
    marks = mark_of(tables)
    cleaned(tables)
    looking = watch(tables)
    looking.checked["topic"] = 2
    looking.check(["topic"])
    assert positions(tables) == expected(5)
    assert audit(tables, marks, ["topic"])["topic"].loss is None


@pytest.mark.parametrize("since", [-1, 0, 2, 4, 5])
def test_a_log_that_is_all_there_is_whole(tables: TopicTables, since: int) -> None:
    seen = scan_foreign(tables, "topic", since)
    assert (seen.newest, seen.commits, seen.is_whole) == (4, (), True)
