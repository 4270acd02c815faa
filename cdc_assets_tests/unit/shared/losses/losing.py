"""What a topic can lose."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction


def commits(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def newest_file(table: Path) -> Path:
    return table / str(max(DeltaTable(str(table)).get_add_actions()["path"].to_pylist()))


def remove(table: Path) -> None:
    shutil.rmtree(table)


def lose_newest_commit(table: Path) -> None:
    commits(table)[-1].unlink()


def empty_newest_commit(table: Path) -> None:
    commits(table)[-1].write_bytes(b"")


def cut_newest_commit(table: Path) -> None:
    commits(table)[-1].write_bytes(commits(table)[-1].read_bytes()[:-20])


def lose_newest_file(table: Path) -> None:
    newest_file(table).unlink()


def cut_newest_file(table: Path) -> None:
    file = newest_file(table)
    file.write_bytes(file.read_bytes()[:-10])


def empty_older_commit(table: Path) -> None:
    commits(table)[-2].write_bytes(b"")


def lose_rows_by_rewriting(table: Path) -> None:
    """Another program joins all files, and forgets the last row."""
    handle, path = DeltaTable(str(table)), table / "joined.parquet"
    former = handle.get_add_actions()["path"].to_pylist()
    rows = pa.concat_tables([pq.read_table(table / name) for name in former])
    pq.write_table(rows.slice(0, rows.num_rows - 1), path)
    statistics = json.dumps({"numRecords": rows.num_rows - 1})
    added = AddAction(path.name, path.stat().st_size, {}, 0, False, statistics)
    handle.create_write_transaction(
        [*(RemoveAction(name, False, 0) for name in former), added], "append", handle.schema()
    )


LOSSES: dict[str, tuple[Callable[[Path], None], str]] = {
    "folder removed": (remove, "all"),
    "newest commit deleted": (lose_newest_commit, "last window"),
    "newest commit empty": (empty_newest_commit, "last window"),
    "newest commit cut off": (cut_newest_commit, "last window"),
    "older commit empty": (empty_older_commit, "all"),
    "data file missing": (lose_newest_file, "last file"),
    "data file cut off": (cut_newest_file, "last file"),
}
