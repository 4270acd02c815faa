"""What tests of incremental snapshots share: tables, signals, and things that happen at a step."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.unit.signals.world import World, values

X = "'x'"
CAPTURE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{}', @role_name = NULL"


class Once:
    """Does something at the n-th time of a step."""

    def __init__(self, step: str, action: Callable[[], object], number: int = 1) -> None:
        self.step, self.action, self.left = step, action, number

    def __call__(self, name: str) -> None:
        self.left -= name == self.step
        if name == self.step and self.left == 0:
            self.action()


class Nth(Once):
    """Does something at the n-th call, by whichever thread."""

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        super().__init__("", action, number)
        self._lock = Lock()

    def __call__(self, name: str = "") -> None:
        with self._lock:
            super().__call__(name)


def ask(world: World, *tables: TableId, own_id: str = "s1", **more: object) -> None:
    world.signal(own_id, "execute-snapshot", data_collections=[str(table) for table in tables], **more)


def orders(world: World, rows: int = 100) -> TableId:
    """A table of some rows that were read once."""
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(1, rows + 1)))}")
    world.run("snapshot")
    return table


def scans(world: World) -> list[str]:
    """How the tables' scans ended."""
    return [status for kind, status in world.notes() if kind == "TABLE_SCAN_COMPLETED"]


def ids(world: World, table: TableId, name: str = "id") -> list[Any]:
    return sorted((row[name] for row in world.reads(table)), key=lambda value: (value is not None, value))
