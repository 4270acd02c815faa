"""Which rows of a transaction a connector has delivered, whatever the order of its change LSNs."""

import random
from collections.abc import Sequence

import pytest

from cdc_assets.adoption.delivered import Row, delivered
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import InvalidValueError

COMMIT = Lsn.from_int(1000)
ONE, TWO = TableId("db", "dbo", "one"), TableId("db", "dbo", "two")
Tables = dict[TableId, list[Row]]


def rows(*parts: tuple[int, int, int]) -> list[Row]:
    return [(command, Lsn.from_int(change), operation) for command, change, operation in parts]


def starts(tables: Tables, change: int, serial: int) -> tuple[dict[str, tuple[int, int, int, int]], bool]:
    """Place, serial and events by table, and whether everything was delivered."""
    done = delivered({table: iter(found) for table, found in tables.items()}, COMMIT, Lsn.from_int(change), serial)
    places = {
        table.table: (int(start.position.change_lsn), start.position.operation, start.serial, start.events)
        for table, start in done.starts.items()
    }
    return places, done.all


TABLES = {
    ONE: rows((1, 1, 2), (2, 3, 3), (2, 3, 4), (3, 6, 1), (3, 6, 2)),
    TWO: rows((1, 2, 2), (2, 4, 1)),
}


@pytest.mark.parametrize(
    ("change", "serial", "places", "everything"),
    [
        (1, 1, {"one": (1, 2, 1, 1)}, False),
        (3, 2, {"one": (3, 4, 2, 2), "two": (2, 2, 1, 1)}, False),
        (6, 1, {"one": (6, 1, 1, 3), "two": (4, 1, 1, 2)}, False),
        (6, 2, {"one": (6, 2, 2, 4), "two": (4, 1, 1, 2)}, True),
        (5, 1, {"one": (3, 4, 2, 2), "two": (4, 1, 1, 2)}, False),
    ],
    ids=["first", "update", "half of a changed key", "last", "row of no captured table"],
)
def test_delivered_rows(change: int, serial: int, places: object, everything: bool) -> None:
    assert starts(TABLES, change, serial) == (places, everything)


def test_later_commands_may_have_smaller_change_lsns() -> None:
    tables = {ONE: rows((1, 10, 2), (2, 5, 2)), TWO: rows((1, 7, 2), (2, 20, 2))}
    assert starts(tables, 10, 1) == ({"one": (10, 2, 1, 1), "two": (7, 2, 1, 1)}, False)
    assert starts(tables, 5, 1) == ({"one": (5, 2, 1, 2), "two": (7, 2, 1, 1)}, False)


def test_nothing_is_guessed() -> None:
    with pytest.raises(InvalidValueError, match="named by two of its rows"):
        starts({ONE: rows((1, 5, 1), (1, 6, 2), (2, 5, 2))}, 5, 1)
    with pytest.raises(InvalidValueError, match="a row of a captured table"):
        starts({ONE: rows((1, 10, 2), (2, 5, 2))}, 7, 1)
    with pytest.raises(InvalidValueError, match="have no command id"):
        starts({ONE: [(None, Lsn.from_int(1), 2)]}, 1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_delivered_and_what_is_left_is_the_log(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - a test's choice
    numbers = rng.sample(range(1, 200), 30)
    tables: Tables = {ONE: [], TWO: []}
    for command, number in enumerate(numbers):
        own = tables[rng.choice((ONE, TWO))]
        own += rows(*[(command, number, operation) for operation in rng.choice(((1,), (2,), (3, 4), (1, 2)))])
    for place, (table, left) in enumerate(merge(tables)):
        change, operation = int(left[1]), left[2]
        if operation == 3:
            continue
        serial = 2 if (operation == 4 or (operation == 2 and (left[0], left[1], 1) in tables[table])) else 1
        places, everything = starts(tables, change, serial)
        expected = {one.table: row for one, row in merge(tables)[: place + 1]}
        assert {name: found[:2] for name, found in places.items()} == {
            name: (int(row[1]), row[2]) for name, row in expected.items()
        }
        assert everything == (place + 1 == len(merge(tables)))


def merge(tables: Tables) -> Sequence[tuple[TableId, Row]]:
    """The smallest change LSN of the rows that come next, again and again."""
    left, found = {table: list(own) for table, own in tables.items()}, []
    while any(left.values()):
        table = min((table for table in left if left[table]), key=lambda table: left[table][0][1])
        found.append((table, left[table].pop(0)))
    return found
