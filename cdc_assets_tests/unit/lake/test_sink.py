"""What sinks may do to appends, and that nothing of it loses or doubles rows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from cdc_assets.errors import FencedError, InvalidValueError, LakeError, SinkError
from cdc_assets.lake.location import Location
from cdc_assets.lake.sink import Append, commit
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.lake.writing import schema_of, write

SCHEMA = schema_of(id=pa.int32())


class Playing:
    """A sink that does what a test wants."""

    def __init__(self, play: Callable[[Append], Any]) -> None:
        self.play, self.calls = play, list[Append]()

    def write(self, append: Append) -> bool:
        self.calls.append(append)
        return bool(self.play(append))


def tables_with(folder: Path, play: Callable[[Append], Any]) -> tuple[TopicTables, Playing]:
    sink = Playing(play)
    return TopicTables(Location(str(folder)), "shop", sink=sink), sink


def append_window(tables: TopicTables, number: int, metadata: Mapping[str, str] | None = None) -> bool:
    files = write(tables, SCHEMA, number, {"id": 1}, {"id": 2})
    return tables.commit("topic", SCHEMA, files, number, metadata or {})


def committed_rows(folder: Path) -> int:
    """Rows as a reader sees them."""
    handle = TopicTables(Location(str(folder)), "shop").open("topic")
    return 0 if handle is None else handle.to_pyarrow_table().num_rows


def test_a_sink_sees_each_append_and_adds_to_what_its_commit_says(tmp_path: Path) -> None:
    tables, sink = tables_with(tmp_path, lambda append: commit(append.with_metadata({"acme.team": "sales"})))
    assert append_window(tables, 7, {"window_id": "7"})
    [append] = sink.calls
    assert (append.topic, append.directory, append.number, append.rows) == ("topic", "topic", 7, 2)
    assert append.schema.names == SCHEMA.names
    newest = DeltaTable(str(tmp_path / "topic")).history(1)[0]
    assert (newest["window_id"], newest["acme.team"]) == ("7", "sales")
    assert not append_window(tables, 7), "it is asked again, and finds the number taken"
    assert (len(sink.calls), committed_rows(tmp_path)) == (2, 2)


@pytest.mark.parametrize("more", [{"window_id": "8"}, {"cdc.replaced": "1"}, {"operation": "x"}, {"acme.number": 1}])
def test_metadata_of_others_has_names_of_its_own(tmp_path: Path, more: dict[str, Any]) -> None:
    tables, sink = tables_with(tmp_path, commit)
    append_window(tables, 1)
    with pytest.raises(InvalidValueError):
        sink.calls[0].with_metadata(more)


def test_what_the_library_says_of_a_commit_cannot_be_taken_away(tmp_path: Path) -> None:
    def forging(append: Append) -> bool:
        object.__setattr__(append, "metadata", {"window_id": "99"})
        object.__setattr__(append, "number", 99)
        object.__setattr__(append, "files", ())
        return commit(append)

    tables, _ = tables_with(tmp_path, forging)
    assert append_window(tables, 7, {"window_id": "7"})
    assert DeltaTable(str(tmp_path / "topic")).history(1)[0]["window_id"] == "7"
    assert (tables.reached("topic"), committed_rows(tmp_path)) == (7, 2)


def fail_before(append: Append) -> bool:
    raise ConnectionError("the register does not answer")


def fail_after(append: Append) -> bool:
    commit(append)
    raise KeyError("team")


@pytest.mark.parametrize(
    ("play", "when", "there"), [(fail_before, "before", False), (fail_after, "after", True)], ids=["before", "after"]
)
def test_a_sink_that_raises_has_the_append_repeated(
    tmp_path: Path, play: Callable[[Append], bool], when: str, *, there: bool
) -> None:
    tables, sink = tables_with(tmp_path, play)
    with pytest.raises(SinkError, match=rf"Playing\.write raised .* {when} the commit of topic under number 1") as told:
        append_window(tables, 1)
    assert told.value.retryable
    assert told.value.__cause__ is not None
    sink.play = commit
    assert append_window(tables, 1) is not there
    assert committed_rows(tmp_path) == 2


def test_a_terminal_error_of_a_sink_ends_the_run(tmp_path: Path) -> None:
    def refuse(append: Append) -> bool:
        raise InvalidValueError("contract", append.topic, "one that is signed", "sign it")

    tables, _ = tables_with(tmp_path, refuse)
    with pytest.raises(LakeError, match="sign it"):
        append_window(tables, 1)
    assert committed_rows(tmp_path) == 0


def test_a_sink_that_commits_nothing_is_not_believed(tmp_path: Path) -> None:
    tables, _ = tables_with(tmp_path, lambda append: True)
    with pytest.raises(LakeError, match=r"have it call super\(\)\.write"):
        append_window(tables, 1)
    assert tables.reached("topic") == -1
    assert not tables.fresh_marks()


def test_a_sink_that_commits_twice_or_returns_nothing_appends_once(tmp_path: Path) -> None:
    answers = list[bool]()
    tables, _ = tables_with(tmp_path, lambda append: answers.extend([commit(append), commit(append)]))
    assert append_window(tables, 1)
    assert (answers, committed_rows(tmp_path)) == ([True, False], 2)


@pytest.mark.parametrize("raises_another", [False, True])
def test_an_error_of_the_commit_cannot_be_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, raises_another: bool
) -> None:
    def catching(append: Append) -> bool:
        try:
            return commit(append)
        except LakeError as error:
            if raises_another:
                raise ValueError("mine") from error
            return False

    def away(*_: Any) -> None:
        raise OSError("the store is gone")

    tables, _ = tables_with(tmp_path, catching)
    monkeypatch.setattr(DeltaTables, "append_files", away)
    with pytest.raises(LakeError, match="the store is gone"):
        append_window(tables, 1)


def test_a_sink_that_is_overtaken_commits_nothing(tmp_path: Path) -> None:
    other = TopicTables(Location(str(tmp_path)), "shop")
    other.ensure("topic", SCHEMA)

    def slow(append: Append) -> bool:
        assert other.leave_out("topic", append.number)
        return commit(append)

    tables, _ = tables_with(tmp_path, slow)
    with pytest.raises(FencedError, match="left the table out of window 4"):
        append_window(tables, 4)
    assert committed_rows(tmp_path) == 0


def test_nothing_is_committed_after_the_call_has_ended(tmp_path: Path) -> None:
    tables, sink = tables_with(tmp_path, fail_before)
    with pytest.raises(SinkError) as told:
        append_window(tables, 1)
    assert not told.value.is_tried
    with pytest.raises(LakeError, match="commit within the call"):  # by a thread that has slept
        commit(sink.calls[0])
    assert committed_rows(tmp_path) == 0


def test_a_commit_that_may_be_there_counts_as_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = DeltaTables.append_files

    def answer_is_lost(*given: Any) -> None:
        original(*given)
        raise OSError("no answer")

    def stubborn(append: Append) -> bool:
        with pytest.raises(LakeError, match="no answer"):
            commit(append)
        assert not commit(append), "it is there"
        raise ValueError("enough")

    tables, _ = tables_with(tmp_path, stubborn)
    monkeypatch.setattr(DeltaTables, "append_files", answer_is_lost)
    with pytest.raises(SinkError, match="after the commit") as told:
        append_window(tables, 1)
    assert told.value.is_tried
    assert committed_rows(tmp_path) == 2


def test_a_conflict_is_solved_within_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, sink = tables_with(tmp_path, commit)
    original, attempts = DeltaTables.append_files, list[int]()

    def refused_once(*given: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise CommitFailedError("another writer was first")
        original(*given)

    monkeypatch.setattr(DeltaTables, "append_files", refused_once)
    assert append_window(tables, 1)
    assert (len(attempts), len(sink.calls)) == (2, 1)


def test_a_directory_may_have_a_sink_of_its_own(tmp_path: Path) -> None:
    topics, history = Playing(commit), Playing(commit)
    tables = TopicTables(Location(str(tmp_path)), "shop", sink=topics, others={"topic": history})
    append_window(tables, 1)
    assert (len(topics.calls), len(history.calls)) == (0, 1)


def test_taking_a_number_without_rows_is_no_append(tmp_path: Path) -> None:
    tables, sink = tables_with(tmp_path, commit)
    tables.ensure("topic", SCHEMA)
    assert tables.leave_out("topic", 3)
    assert not sink.calls
