"""Commits that remove files: no row is lost or there twice, whoever rewrites beside them."""

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError

from cdc_assets.core.steps import VARIABLE, listening
from cdc_assets.errors import FencedError, InvariantError, LakeConflictError, LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.replacing import Replacement, replace_files
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.e2e.chains import REPLACING
from cdc_assets_tests.unit.lake.writing import join_all, nobody_else, schema_of, write

ROOT = Path(__file__).parents[3]
SCHEMA = schema_of(id=pa.int32())
IDS = [1, 2, 3, 4]


def tables_at(path: Path) -> TopicTables:
    return TopicTables(Location(str(path)), "shop")


def append(tables: TopicTables, window: int) -> None:
    assert tables.commit("topic", SCHEMA, write(tables, SCHEMA, window, {"id": window}), window, {})


@pytest.fixture
def tables(tmp_path: Path) -> TopicTables:
    made = tables_at(tmp_path)
    for window in IDS:
        append(made, window)
    return made


def handle_of(tables: TopicTables) -> DeltaTable:
    return DeltaTable(tables.location.uri("topic"))


def ids(tables: TopicTables) -> list[int]:
    return sorted(row["value"]["after"]["id"] for row in handle_of(tables).to_pyarrow_table().to_pylist())


def files(tables: TopicTables) -> list[str]:
    found: list[str] = pa.table(handle_of(tables).get_add_actions())["path"].to_pylist()
    return found


def once(step: str, action: Any) -> listening:
    """Do something when a step is reached for the first time."""
    waiting = [action]

    def listen(name: str) -> None:
        if name == step and waiting:
            waiting.pop()()

    return listening(listen)


# ---- one place -------------------------------------------------------------------------------------------------------


def removals() -> Iterator[str]:
    """Places of the library that make a commit which removes files."""
    for path in sorted((ROOT / "cdc_assets").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            overwrites = name in ("create_write_transaction", "write_deltalake") and any(
                isinstance(part, ast.Constant) and part.value == "overwrite" for part in ast.walk(node)
            )
            if name in ("RemoveAction", "compact", "z_order", "restore") or overwrites:
                owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
                if name not in ("compact", "restore") or owner.endswith(("optimize", "handle")):
                    yield f"{path.relative_to(ROOT / 'cdc_assets')} {name}"


@pytest.mark.long
def test_one_place_removes_files() -> None:
    assert set(removals()) == {"lake/replacing.py RemoveAction", "lake/replacing.py create_write_transaction"}
    assert len(list(removals())) == 2


# ---- writers beside it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["files-joined", "replacement-checked"])
@pytest.mark.parametrize("foreign", [False, True])
def test_a_sleeper_whose_files_went_changes_nothing(tables: TopicTables, step: str, foreign: bool) -> None:
    other = tables_at(Path(tables.location.root))

    def overtake() -> None:
        _ = handle_of(tables).optimize.compact() if foreign else join_all(other, "topic")
        append(other, 5)

    with once(step, overtake):
        assert not join_all(tables, "topic")
    assert ids(tables) == [*IDS, 5]
    assert len(files(tables)) == 2
    assert join_all(tables, "topic")
    assert (ids(tables), len(files(tables))) == ([*IDS, 5], 1)


@pytest.mark.parametrize("step", ["files-joined", "replacement-checked"])
def test_appends_of_others_do_not_matter(tables: TopicTables, step: str) -> None:
    with once(step, lambda: append(tables_at(Path(tables.location.root)), 5)):
        assert join_all(tables, "topic")
    assert (ids(tables), len(files(tables)), tables.reached("topic")) == ([*IDS, 5], 2, 5)


@pytest.mark.parametrize("step", REPLACING)
def test_a_crash_leaves_all_rows(tables: TopicTables, step: str) -> None:
    with cut_at(step), suppress(PowerCutError):
        join_all(tables, "topic")
    later = tables_at(Path(tables.location.root))
    assert (ids(later), len(files(later)) == 1) == (IDS, step == "files-replaced")
    join_all(later, "topic")
    assert (ids(later), len(files(later))) == (IDS, 1)


@pytest.mark.parametrize("step", REPLACING)
def test_a_killed_process_leaves_all_rows(tables: TopicTables, step: str) -> None:
    code = (
        f"from pathlib import Path; from {__name__} import tables_at, join_all; "
        f"join_all(tables_at(Path({tables.location.root!r})), 'topic')"
    )
    died = subprocess.run([sys.executable, "-c", code], env=os.environ | {VARIABLE: step}, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert ids(tables) == IDS
    join_all(tables, "topic")
    assert (ids(tables), len(files(tables))) == (IDS, 1)


def test_who_was_overtaken_is_told_before_the_commit(tables: TopicTables) -> None:
    def fence() -> None:
        raise FencedError("Another run has taken over. Next: nothing.")

    version = handle_of(tables).version()
    with pytest.raises(FencedError):
        replace_files(tables, "topic", Replacement(files(tables)[:1], dropped=1), fence)
    assert handle_of(tables).version() == version


# ---- what a commit may do --------------------------------------------------------------------------------------------


def test_no_row_is_lost_unless_it_is_said(tables: TopicTables) -> None:
    with pytest.raises(InvariantError, match="replaced by 0 rows"):
        replace_files(tables, "topic", Replacement(files(tables)[:1]), nobody_else)
    assert ids(tables) == IDS
    assert replace_files(tables, "topic", Replacement(files(tables)[:1], dropped=1), nobody_else)
    assert len(ids(tables)) == 3


def delete_in_place(tables: TopicTables) -> None:
    """Another program says in the log which rows of the newest file are deleted, and leaves the file as it is."""
    handle_of(tables).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    version = handle_of(tables).version() + 1
    log = Path(tables.location.uri("topic")) / "_delta_log"
    actions = [json.loads(line) for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()]
    add = [action["add"] for action in actions if "add" in action][-1]
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    made = [
        {"commitInfo": {"timestamp": 1, "operation": "DELETE"}},
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "dataChange": True, "deletionVector": {**vector, "cardinality": 1}}},
    ]
    (log / f"{version:020d}.json").write_text("".join(f"{json.dumps(action)}\n" for action in made))


def test_files_of_which_rows_are_deleted_in_the_log_are_not_rewritten(tables: TopicTables) -> None:
    """Their rows would come back; and as the log names such a file by more than its path, it would stay beside the new one."""
    delete_in_place(tables)
    version, before = handle_of(tables).version(), files(tables)
    assert not join_all(tables, "topic")
    with pytest.raises(LakeError, match="uses deletionVectors"):
        replace_files(tables, "topic", Replacement(before[:1], dropped=1), nobody_else)
    assert (handle_of(tables).version(), files(tables)) == (version, before)


def test_a_file_that_is_not_there_is_not_removed(tables: TopicTables) -> None:
    version = handle_of(tables).version()
    with pytest.raises(LakeConflictError, match="replaced gone"):
        replace_files(tables, "topic", Replacement(["gone.parquet"], dropped=None), nobody_else)
    assert handle_of(tables).version() == version


def test_a_commit_whose_answer_is_lost_was_made(tables: TopicTables, monkeypatch: pytest.MonkeyPatch) -> None:
    real = DeltaTable.create_write_transaction

    def lose(self: DeltaTable, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        raise CommitFailedError("Failed to commit transaction: 0")

    version = handle_of(tables).version()
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", lose)
        assert join_all(tables, "topic")
    assert (ids(tables), len(files(tables)), handle_of(tables).version()) == (IDS, 1, version + 1)


def test_files_of_former_structures_are_joined(tables: TopicTables) -> None:
    """A column that a file lacks, at any depth, is null, as in every reader."""
    wider = schema_of(id=pa.int32(), note=pa.string())
    assert tables.commit("topic", wider, write(tables, wider, 5, {"id": 5, "note": "new"}), 5, {})
    assert join_all(tables, "topic")
    rows = handle_of(tables).to_pyarrow_table().sort_by("position").to_pylist()
    assert [row["value"]["after"]["note"] for row in rows] == [None, None, None, None, "new"]
    assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)


def test_a_table_that_becomes_empty_as_a_whole_is_empty(tables: TopicTables) -> None:
    columns = Schema.from_arrow(pa.schema(handle_of(tables).schema().to_arrow()))
    wanted = Replacement(None, [], None, is_new=True, number=9, schema=columns)
    assert replace_files(tables, "topic", wanted, nobody_else)
    assert files(tables) == []
    assert tables.reached("topic") == 9
