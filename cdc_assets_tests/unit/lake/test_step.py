"""A step is carried out in one order, whatever it is: a power cut at any point of it leaves each row there once."""

import ast
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_assets.core.steps import listening
from cdc_assets.errors import LakeError
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.lake.step import Events, Step, carry_out, lost_files
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.lake.writing import batch_of, schema_of

ROOT = Path(__file__).parents[3]
SCHEMA = schema_of(id=pa.int32())
DIRECTORIES = ("first", "left", "right")
NUMBER = 4
Written = dict[str, list[DataFile]]


class PowerCutError(Exception):
    """The process ends here."""


@dataclass
class Record:
    """What outlives a power cut, beside the tables."""

    files: Written | None = None
    is_complete: bool = False
    reads: int = 0


@dataclass
class Trial:
    """A step over three tables, in two groups; `cut` is where the process ends."""

    tables: TopicTables
    record: Record
    repeatable: bool
    cut: str = ""

    def _at(self, place: str) -> None:
        if place == self.cut:
            raise PowerCutError(place)

    def step(self) -> Step:
        """The step, as each kind makes it: from what is recorded, or else from files that it writes."""
        recorded = self._recorded()
        made = self._written() if recorded is None else recorded
        commits = [Events(self.tables, name, made[name], {}) for name in DIRECTORIES]
        self._at("commits")
        record, complete = partial(self._record, made), self._complete
        return Step(NUMBER, [commits[:1], commits[1:]], record, complete, is_recorded=recorded is not None)

    def _recorded(self) -> Written | None:
        self._at("found")
        return self.record.files

    def _written(self) -> Written:
        self.record.reads += 1
        # what cannot be read twice is something else at each time
        value = 0 if self.repeatable else self.record.reads
        made = {name: written(self.tables, name, value) for name in DIRECTORIES}
        self._at("written")
        return made

    def _record(self, made: Written) -> None:
        self._at("before the record")
        if not self.repeatable:
            self.record.files = made
        self._at("record")

    def _complete(self) -> None:
        self._at("before the end")
        self.record.is_complete = True
        self._at("end")


@pytest.fixture
def tables(tmp_path: Path) -> TopicTables:
    made = TopicTables(Location(str(tmp_path)), "shop")
    for name in DIRECTORIES:
        made.ensure(name, SCHEMA)
    return made


def written(tables: TopicTables, directory: str, value: int) -> list[DataFile]:
    with TopicWriter(tables.location, directory, SCHEMA, NUMBER) as writer:
        writer.write([batch_of(SCHEMA, NUMBER, {"id": value})])
    return writer.files


def rows(tables: TopicTables) -> list[list[int]]:
    found = [pa.table(DeltaTable(tables.location.uri(name)).to_pyarrow_table()) for name in DIRECTORIES]
    return [[value["after"]["id"] for value in table["value"].to_pylist()] for table in found]


def carried_out(trial: Trial, commits: Sequence[int] = ()) -> None:
    """Carry out a step; the process ends behind as many commits."""
    made = 0

    def count(name: str) -> None:
        nonlocal made
        made += name == "table-committed"
        if made in commits:
            raise PowerCutError(name)

    with listening(count):
        carry_out(trial.step(), trial.tables.require_files)


@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize(
    "cut", ["found", "written", "commits", "before the record", "record", 1, 2, 3, "before the end", "end"]
)
def test_each_row_is_there_once_wherever_the_process_ends(
    tables: TopicTables, repeatable: bool, cut: str | int
) -> None:
    record = Record()
    first = Trial(tables, record, repeatable, cut if isinstance(cut, str) else "")
    with pytest.raises(PowerCutError):
        carried_out(first, [cut] if isinstance(cut, int) else [])
    if not record.is_complete:
        carried_out(Trial(TopicTables(tables.location, "shop"), record, repeatable))
    assert record.is_complete
    found = rows(tables)
    assert [len(one) for one in found] == [1, 1, 1]
    assert len({str(one) for one in found}) == 1, "all rows are of one reading"
    reads = 2 if cut in ("written", "commits", "before the record") else 1
    assert repeatable or record.reads == reads, "what is recorded is never read again"


def test_the_first_group_is_committed_before_the_second_begins(tables: TopicTables) -> None:
    with pytest.raises(PowerCutError):
        carried_out(Trial(tables, Record(), repeatable=True), [1])
    assert [len(one) for one in rows(tables)] == [1, 0, 0]


def test_nothing_is_recorded_or_committed_if_a_file_is_missing(tables: TopicTables) -> None:
    class Losing(Trial):
        def _written(self) -> Written:
            made = super()._written()
            Path(self.tables.location.uri("right").removeprefix("file://"), made["right"][0].path).unlink()
            return made

    record = Record()
    with pytest.raises(LakeError, match="cannot see"):
        carried_out(Losing(tables, record, repeatable=False))
    assert record == Record(reads=1)
    assert [len(one) for one in rows(tables)] == [0, 0, 0]


def test_recorded_files_that_are_gone_are_left_out_for_everybody(tables: TopicTables) -> None:
    files = {name: written(tables, name, 1) for name in DIRECTORIES}
    assert tables.commit("first", None, files["first"], NUMBER, {})
    Path(tables.location.uri("left").removeprefix("file://"), files["left"][0].path).unlink()
    TopicTables(tables.location, "shop").leave_out("right", NUMBER)
    tables.forget("right")
    lost = lost_files(tables, NUMBER, files)
    assert lost == {"left": f"{files['left'][0].path} is missing", "right": "another run has left them out"}
    assert tables.left_out("left", NUMBER)
    assert lost_files(tables, NUMBER, {"first": files["first"]}) == {}


def test_recorded_files_of_a_table_that_is_gone_are_lost(tables: TopicTables) -> None:
    files = {name: written(tables, name, 1) for name in DIRECTORIES}
    shutil.rmtree(tables.location.uri("left").removeprefix("file://"))
    again = TopicTables(tables.location, "shop")
    assert lost_files(again, NUMBER, files) == {"left": f"{files['left'][0].path} is missing"}


def callers(name: str, of: str | None = None) -> set[str]:
    """Modules of the library that call a function of this name; or a method, of what ends so."""
    found = set()
    for path in (ROOT / "cdc_assets").rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if f"{name}(" in text else ():
            if isinstance(node, ast.Call):
                owner, dot, called = ast.unparse(node.func).rpartition(".")
                if called == name and (not dot if of is None else dot and owner.endswith(of)):
                    found.add(str(path.relative_to(ROOT / "cdc_assets")))
    return found


def test_rows_enter_tables_in_few_places() -> None:
    """All others hand a step to `carry_out`."""
    assert callers("create_write_transaction", of="") == {"lake/tables.py", "lake/replacing.py"}
    assert callers("append_files", of="") == {"lake/topics.py", "ledger/fenced_log.py"}, "the second are records"
    assert not callers("write_deltalake") | callers("write_deltalake", of="")
    assert callers("commit", of="tables") == {
        "lake/step.py",  # windows, rounds, chunks, batches
        "lake/small.py",  # one row, such as a heartbeat
        "history/store.py",  # structures, before a window is read
        "defs/envelope_io.py",  # what an asset of a user returns
    }


def test_files_leave_tables_in_few_places() -> None:
    """All others hand a step to `carry_out`."""
    assert callers("replace_files") == {
        "lake/rewriting.py",  # joined, dropped, compacted, undone, damaged: steps
        "mirror/fold_step.py",  # folds
        "ledger/fenced_log.py",  # the record itself
        "lake/overwriting.py",  # what an asset of a user returns
    }
    assert callers("commit", of="change") == {"lake/step.py"}
    assert not callers("delete", of="") | callers("compact", of=".optimize") | callers("restore", of="")


KINDS = {
    "streaming/windows.py": "streaming/windows.py",
    "snapshot/rounds.py": "snapshot/round_step.py",
    "incremental/snapshot.py": "incremental/chunk_step.py",
    "connectors/engine/run.py": "connectors/engine/batch_step.py",
    "mirror/apply.py": "mirror/fold_step.py",
    "lake/rewriting.py": "lake/rewriting.py",  # joined, undone, damaged
    "retention/step.py": "retention/step.py",  # dropped, compacted
}
"""Module that carries out steps of a kind → the one that says of what they consist."""


def test_kinds_of_steps() -> None:
    assert callers("carry_out") == KINDS.keys()
    page = (ROOT / "docs" / "architecture.md").read_text().partition("| Step | Where |")[2].partition("\n\n")[0]
    assert all(f"`{module}`" in page for module in KINDS.values())
