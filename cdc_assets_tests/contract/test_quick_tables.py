"""`QuickTable` answers as delta-rs does, for two handles that commit in any order, and writes what delta-rs reads."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from cdc_assets.lake import replacing, tables
from cdc_assets.lake.tables import HOOKS
from cdc_assets_tests.quick_tables import QuickTable, quick_tables

pytestmark = pytest.mark.contract

COLUMNS = pa.schema(
    [
        pa.field("position", pa.string()),
        pa.field("window_id", pa.int64()),
        pa.field("key", pa.struct([pa.field("id", pa.int32()), pa.field("at", pa.timestamp("us", "UTC"))])),
    ]
)
PROPERTIES = {"delta.checkpointInterval": "5", "mine": "1"}
CALLS = 60


def statistics(number: int) -> str:
    """Of a file with two rows."""
    if number % 7 == 0:
        return json.dumps({"numRecords": 2})
    at = "2026-11-27T10:00:00.000001Z"
    return json.dumps(
        {
            "numRecords": 2,
            "minValues": {"position": f"{number:04d}", "key": {"id": number, "at": at}},
            "maxValues": {"position": f"{number:04d}x", "key": {"id": number + 1, "at": at}},
            "nullCount": {"position": 0, "key": {"id": number % 3}},
        }
    )


class Side:
    """Two handles of one implementation, on a table of its own."""

    def __init__(self, kind: Any, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.handles = [self._created(), kind(str(folder))]

    def _created(self) -> Any:
        return self.kind.create(
            str(self.folder),
            schema=Schema.from_arrow(COLUMNS),
            mode="ignore",
            configuration=PROPERTIES,
            raise_if_key_not_exists=False,
        )

    def do(self, call: Callable[[Any], Any], handle: int) -> object:
        """What a call returns, or the kind of its error."""
        try:
            return call(self.handles[handle])
        except DeltaError as error:
            return type(error).__name__

    def seen(self, handle: int) -> dict[str, object]:
        """All that the product asks of a handle."""
        table = self.handles[handle]
        protocol, configuration = table.protocol(), table.metadata().configuration
        flat = pa.table(table.get_add_actions(flatten=True))
        names = [name for name in flat.column_names if name != "modification_time" and not name.startswith("partition")]
        rows = sorted(flat.select(names).to_pylist(), key=lambda row: row["path"])
        return {
            "version": table.version(),
            "schema": pa.schema(table.schema().to_arrow()),
            "protocol": (protocol.min_reader_version, protocol.min_writer_version, set(protocol.writer_features or ())),
            "configuration": configuration,
            "rows": [{name: value for name, value in row.items() if value is not None} for row in rows],
            "plain": sorted(pa.table(table.get_add_actions())["path"].to_pylist()),
            "numbers": [table.transaction_version(name) for name in ("one", "two")],
        }


def commit(adds: list[int], gone: list[str], number: int | None, retries: int) -> Callable[[Any], None]:
    """A commit of files."""
    actions: list[Any] = [RemoveAction(path, True, 0) for path in gone]
    actions += [AddAction(f"{one}.parquet", 10 + one, {}, 1_000, True, statistics(one)) for one in adds]
    properties = CommitProperties(
        custom_metadata={"window_id": str(number)},
        max_commit_retries=retries,
        app_transactions=[] if number is None else [Transaction("one", number, 1), Transaction("two", number, 1)],
    )

    def done(table: Any) -> None:
        table.create_write_transaction(
            actions, "append", table.schema(), commit_properties=properties, post_commithook_properties=HOOKS
        )

    return done


def calls(rng: random.Random, paths: Callable[[int], list[str]]) -> Iterator[tuple[int, Callable[[Any], Any]]]:
    """Calls by one of two handles."""
    for number in range(CALLS):
        handle = rng.randrange(2)
        live = paths(handle)
        some = rng.sample(live, min(len(live), 2))
        column = Schema.from_arrow(pa.schema([pa.field(f"c{number}", pa.string())])).fields
        choices: list[Callable[[Any], Any]] = [
            commit([number], [], number, 5),
            commit([number, number + 1000], [], None, 5),
            commit([number], some, None, 0),
            commit([number], some, number, 0),
            commit([], some, None, 0),
            lambda table: table.update_incremental(),
            lambda table: table.update_incremental(),
        ]
        if number % 10 == 0:
            choices = [
                lambda table, column=column: table.alter.add_columns(column),  # type: ignore[misc]
                lambda table, number=number: table.alter.set_table_properties({"mine": str(number)}),  # type: ignore[misc]
                lambda table: table.alter.add_feature(
                    [TableFeatures.TimestampWithoutTimezone], allow_protocol_versions_increase=True
                ),
            ]
        yield handle, rng.choice(choices)


@pytest.mark.parametrize("seed", range(8))
def test_two_handles_see_and_do_the_same(tmp_path: Path, seed: int) -> None:
    real, quick = Side(DeltaTable, tmp_path / "real"), Side(QuickTable, tmp_path / "quick")

    def paths(handle: int) -> list[str]:
        return sorted(pa.table(real.handles[handle].get_add_actions())["path"].to_pylist())

    for number, (handle, call) in enumerate(calls(random.Random(seed), paths)):  # noqa: S311 - a history that can be repeated
        assert quick.do(call, handle) == real.do(call, handle), number
        for one in range(2):
            assert quick.seen(one) == real.seen(one), number
    read = Side(DeltaTable, tmp_path / "quick")
    assert read.seen(0) == Side(QuickTable, tmp_path / "real").seen(0)


def _replaced(kind: Any, folder: Path) -> None:
    shutil.rmtree(folder)
    Side(kind, folder)


def _lost(number: int) -> Callable[[Any, Path], None]:
    return lambda kind, folder: (folder / "_delta_log" / f"{number:020d}.json").unlink()


def _cut(kind: Any, folder: Path) -> None:
    Path(folder / "_delta_log" / f"{4:020d}.json").write_bytes(b'{"add":{"pa')
    shutil.move(folder / "_delta_log", folder / "log")  # nobody remembers it
    shutil.copytree(folder / "log", folder / "_delta_log")


DAMAGE: dict[str, Callable[[Any, Path], None]] = {
    "removed": lambda kind, folder: shutil.rmtree(folder),
    "replaced": _replaced,
    "without its newest commit": _lost(4),
    "without a commit in the middle": _lost(2),
    "cut off": _cut,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_handle_of_a_table_that_is_damaged_meanwhile(tmp_path: Path, damage: Callable[[Any, Path], None]) -> None:
    """What delta-rs refuses is refused: no other table is taken for the handle's own, and nothing is committed to it."""
    found = []
    for kind in (DeltaTable, QuickTable):
        side = Side(kind, tmp_path / kind.__name__)
        for number in range(4):
            commit([number], [], number, 5)(side.handles[0])
            side.handles[0].update_incremental()
        damage(kind, side.folder)
        calls = (lambda table: table.transaction_version("one"), commit([9], [], None, 5), commit([9], [], None, 0))
        done = [side.do(call, 0) for call in calls]
        opened = side.do(lambda _, kind=kind, side=side: kind(str(side.folder)) and None, 0)
        found.append([outcome if isinstance(outcome, int | None) else "refused" for outcome in (*done, opened)])
    assert all(quick in (real, "refused") for real, quick in zip(*found, strict=True)), found


@pytest.mark.parametrize("kind", [DeltaTable, QuickTable])
def test_a_folder_without_a_table(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(TableNotFoundError):
        kind(str(tmp_path))


def test_the_product_opens_its_tables_so_and_only_within() -> None:
    with quick_tables():
        assert tables.DeltaTable is QuickTable  # type: ignore[comparison-overlap]
        assert replacing.DeltaTable is QuickTable  # type: ignore[comparison-overlap]
    assert tables.DeltaTable is DeltaTable
