"""What is inserted into a table of any shape is what every driver reads, value by value.

The expected values are computed here, from what was drawn, never read from the server. Rows go in as literals or as parameters
of several drivers, and come out evaluated, from encoded blocks that are made and from those that are kept, from the change table and
from the change function. `CDC_SHAPES` sets how many shapes are tried.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from cdc_assets_tests.contract.clients.stacks import STACKS, Client, Row, plain
from mssql_standin.control import StandIn
from mssql_standin.wire import blocks

CP1252 = "".join(one for one in bytes(range(256)).decode("cp1252", "ignore") if " " <= one != "\x7f")
"""Its characters; `characters(codec=…)` tries a million of them first."""
SHAPES = int(os.environ.get("CDC_SHAPES", "15"))
ROW_READERS = ("odbc18", "freetds", "mssql-python", "pytds")
OWN_FORM = {("freetds", "datetimeoffset")}
"""(stack, type) whose values the driver hands out in a form of its own."""

LARGE = ("text", "ntext", "image")
"""Types whose values the image of a deleted row does not hold."""


class Cell(NamedTuple):
    """One value: as a literal, as a parameter that no driver shortens, and as `plain` shows it."""

    literal: str
    given: Any
    expected: Any


NULL = Cell("NULL", None, None)


@dataclass(frozen=True)
class Column:
    """A column of a shape."""

    name: str
    declared: str
    nullable: bool

    @property
    def type(self) -> str:
        """The type's name without length."""
        return self.declared.partition("(")[0]


def number(value: Any) -> Cell:
    return Cell(str(value), value, value)


def approximate(value: float) -> Cell:
    text = repr(value)
    return Cell(text if "e" in text else f"{text}e0", value, value)


def exact(digits: int, scale: int) -> SearchStrategy[Cell]:
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(lambda scaled: number(Decimal(f"{scaled}E-{scale}"))).map(_written_out)


def _written_out(cell: Cell) -> Cell:
    return cell._replace(literal=f"{cell.given:f}")


def moment(value: Any) -> Cell:
    text = value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    return Cell(f"'{text}'", text, plain(value))


def fraction(scale: int) -> SearchStrategy[timedelta]:
    """A part of a day in steps of that many digits; drivers drop the seventh."""
    step = 10 ** (6 - min(scale, 6))
    return st.integers(0, 86_400_000_000 // step - 1).map(lambda count: timedelta(microseconds=count * step))


def clock(part: timedelta) -> time:
    return (datetime.combine(date(2000, 1, 1), time()) + part).time()


def moments(scale: int, earliest: date = date.min, latest: date = date.max) -> SearchStrategy[datetime]:
    midnights = st.dates(earliest, latest).map(lambda day: datetime.combine(day, time()))
    return st.builds(lambda midnight, part: midnight + part, midnights, fraction(scale))


def with_zone(scale: int) -> SearchStrategy[datetime]:
    zones = st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))
    inner = moments(scale, date(1, 1, 3), date(9999, 12, 29))
    return st.builds(lambda value, zone: value.replace(tzinfo=zone), inner, zones)


def thirds() -> SearchStrategy[datetime]:
    """The values of datetime, whose milliseconds end in 0, 3 and 7."""
    clock = st.integers(0, 86_400 * 300 - 1).map(lambda tick: timedelta(milliseconds=(tick * 10 + 1) // 3))
    midnights = st.dates(date(1753, 1, 1)).map(lambda day: datetime.combine(day, time()))
    return st.builds(lambda midnight, part: midnight + part, midnights, clock)


def minutes() -> SearchStrategy[datetime]:
    most = 65535 * 1440 + 1439
    return st.integers(0, most).map(lambda count: datetime.combine(date(1900, 1, 1), time()) + timedelta(minutes=count))


def quoted(text: str, length: int = 0) -> Cell:
    """A text; one of fixed length is padded in units of UTF-16."""
    units = len(text.encode("utf-16-le")) // 2
    return Cell("N'" + text.replace("'", "''") + "'", text, text + " " * max(length - units, 0))


def texts(most: int, unicode: bool) -> SearchStrategy[str]:
    if not unicode:
        return st.text(st.sampled_from(CP1252), max_size=most)
    characters = st.characters(exclude_categories=("Cc", "Cs", "Cn"))
    return st.text(characters, max_size=most).filter(lambda text: len(text.encode("utf-16-le")) <= 2 * most)


def octets(value: bytes, length: int = 0) -> Cell:
    return Cell("0x" + value.hex(), value, value.ljust(length, b"\0"))


def markup(text: str) -> Cell:
    return quoted("<a>" + text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").strip() + "x</a>")


def signed(bits: int) -> SearchStrategy[Cell]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1).map(number)


def floats(width: int) -> SearchStrategy[Cell]:
    return st.floats(width=width, allow_nan=False, allow_infinity=False, allow_subnormal=False).map(approximate)  # type: ignore[arg-type]  # 32 or 64


def unzoned(value: datetime) -> Cell:
    """Written as SQL Server reads it: a blank before the offset."""
    text = value.replace(tzinfo=None).isoformat(" ") + " " + value.isoformat()[-6:]
    return Cell(f"'{text}'", text, plain(value))


def in_milliseconds(value: datetime) -> Cell:
    text = value.isoformat(timespec="milliseconds")
    return Cell(f"'{text}'", text, plain(value))


PLAIN: dict[str, SearchStrategy[Cell]] = {
    "bit": st.booleans().map(lambda value: Cell(str(int(value)), value, value)),
    "tinyint": st.integers(0, 255).map(number),
    "smallint": signed(16), "int": signed(32), "bigint": signed(64), "real": floats(32), "float": floats(64),
    "money": exact(18, 4), "smallmoney": exact(9, 4),
    "date": st.dates().map(moment), "datetime": thirds().map(in_milliseconds),
    "smalldatetime": minutes().map(moment),
    "uniqueidentifier": st.uuids().map(lambda value: Cell(f"'{value}'", str(value), str(value).upper())),
    "varchar(max)": texts(60, False).map(quoted), "nvarchar(max)": texts(60, True).map(quoted),
    "text": texts(60, False).map(quoted), "ntext": texts(60, True).map(quoted),
    "varbinary(max)": st.binary(max_size=60).map(octets), "image": st.binary(max_size=60).map(octets),
    "xml": texts(20, True).map(markup),
}  # fmt: skip


def kinds() -> SearchStrategy[tuple[str, SearchStrategy[Cell]]]:
    """A declared type and its values."""
    lengths, scales = st.integers(1, 40), st.integers(0, 7)
    decimals = st.integers(1, 38).flatmap(lambda digits: st.tuples(st.just(digits), st.integers(0, digits)))
    name = st.sampled_from(["decimal", "numeric"])
    return st.one_of(
        st.sampled_from(sorted(PLAIN)).map(lambda declared: (declared, PLAIN[declared])),
        st.sampled_from(["bit", "tinyint"]).map(lambda declared: (declared, PLAIN[declared])),
        st.builds(lambda name, shape: (f"{name}({shape[0]},{shape[1]})", exact(*shape)), name, decimals),
        lengths.map(lambda n: (f"char({n})", texts(n, False).map(lambda text: quoted(text, n)))),
        lengths.map(lambda n: (f"nchar({n})", texts(n, True).map(lambda text: quoted(text, n)))),
        lengths.map(lambda n: (f"varchar({n})", texts(n, False).map(quoted))),
        lengths.map(lambda n: (f"nvarchar({n})", texts(n, True).map(quoted))),
        lengths.map(lambda n: (f"binary({n})", st.binary(max_size=n).map(lambda value: octets(value, n)))),
        lengths.map(lambda n: (f"varbinary({n})", st.binary(max_size=n).map(octets))),
        scales.map(lambda scale: (f"time({scale})", fraction(scale).map(lambda part: moment(clock(part))))),
        scales.map(lambda scale: (f"datetime2({scale})", moments(scale).map(moment))),
        scales.map(lambda scale: (f"datetimeoffset({scale})", with_zone(scale).map(unzoned))),
    )  # fmt: skip


@st.composite
def shapes(draw: Callable[..., Any]) -> tuple[list[Column], list[list[Cell]], list[str]]:
    """Columns, rows and who writes each row. Column `n` numbers the rows; it may stand anywhere."""
    width = draw(st.one_of(st.integers(1, 6), st.integers(1, 6), st.integers(7, 50)))
    height = draw(st.integers(1, 5))
    drawn = draw(st.lists(kinds(), min_size=width, max_size=width))
    columns, cells = list[Column](), list[list[Cell]]()
    for place, (declared, values) in enumerate(drawn):
        nullable = draw(st.booleans())
        columns.append(Column(f"c{place}", declared, nullable))
        wanted = st.one_of(st.just(NULL), values) if nullable else values
        cells.append(draw(st.lists(wanted, min_size=height, max_size=height)))
    place = draw(st.integers(0, width))
    columns.insert(place, Column("n", "int", nullable=False))
    cells.insert(place, [number(row) for row in range(height)])
    writers = draw(st.lists(st.sampled_from(["", *ROW_READERS]), min_size=height, max_size=height))
    return columns, [list(row) for row in zip(*cells, strict=True)], writers


class Bench:
    """A connection of every stack to a database with change data capture."""

    def __init__(self, server: StandIn, database: str, stack: ExitStack) -> None:
        self.clients = {name: STACKS[name](server, database) for name in ROW_READERS}
        for client in self.clients.values():
            stack.callback(client.close)

    @property
    def odbc(self) -> Client:
        """The connection for what no law is about."""
        return self.clients["odbc18"]

    def create(self, table: str, columns: list[Column]) -> None:
        listed = ", ".join(f"{c.name} {c.declared} {'NULL' if c.nullable else 'NOT NULL'}" for c in columns)
        self.odbc.execute(f"CREATE TABLE dbo.{table} ({listed})")
        self.odbc.execute(f"EXEC sys.sp_cdc_enable_table N'dbo', N'{table}', N'{table}', @role_name = NULL")

    def insert(self, table: str, row: list[Cell], writer: str) -> None:
        """As literals, or as parameters of a driver; NULL is always a literal, since a driver would have to guess its type."""
        if not writer:
            self.odbc.execute(f"INSERT dbo.{table} VALUES ({', '.join(cell.literal for cell in row)})")
            return
        markers = ", ".join("NULL" if cell.given is None else "?" for cell in row)
        values = [cell.given for cell in row if cell.given is not None]
        self.clients[writer].execute(f"INSERT dbo.{table} VALUES ({markers})", *values)

    def drop(self, table: str) -> None:
        self.odbc.execute(f"EXEC sys.sp_cdc_disable_table N'dbo', N'{table}', N'{table}'")
        self.odbc.execute(f"DROP TABLE dbo.{table}")

    def arrow(self, query: str) -> list[Row]:
        """What mssql-python's Arrow reader gives."""
        with self.clients["mssql-python"].raw.cursor() as cursor:
            found = cursor.execute(query).arrow()
        listed = [[plain(value) for value in column.to_pylist()] for column in found.columns]
        return list(zip(*listed, strict=True))


@pytest.fixture(scope="module")
def bench(server: StandIn) -> Iterator[Bench]:
    if not isinstance(server, StandIn):
        pytest.skip("the law waits for no capture job and steers encoded blocks, which only the stand-in allows")
    name = f"shapes_{secrets.token_hex(4)}"
    server.execute(f"CREATE DATABASE [{name}]")
    server.execute("EXEC sys.sp_cdc_enable_db", database=name)
    with ExitStack() as stack:
        yield Bench(server, name, stack)


def in_utc(column: Column, expected: Any) -> Any:
    """Arrow has instants, not offsets."""
    if column.type != "datetimeoffset" or expected is None:
        return expected
    return plain(datetime.fromisoformat(expected).astimezone(UTC))


def differences(
    reader: str, query: str, columns: list[Column], expected: list[list[Any]], found: list[Row]
) -> Iterator[str]:
    if len(found) != len(expected):
        yield f"{reader}, {query:.60}: {len(found)} rows instead of {len(expected)}"
    for number_, (wanted, row) in enumerate(zip(expected, found, strict=False)):
        for column, value, got in zip(columns, wanted, row, strict=True):
            if (reader, column.type) in OWN_FORM and value is not None:
                continue
            if type(got) is not type(value) or got != value:
                yield f"{reader}, {query:.60}: row {number_}, {column.declared}: {got!r:.90} instead of {value!r:.90}"


def reads(table: str, columns: list[Column]) -> list[str]:
    """The same rows by five ways; TOP keeps a statement from blocks, which the second reader finds made."""
    names = ", ".join(column.name for column in columns)
    changes = f"cdc.fn_cdc_get_all_changes_{table}(sys.fn_cdc_get_min_lsn('{table}'), sys.fn_cdc_get_max_lsn(), N'all')"
    return [
        f"SELECT TOP (100) {names} FROM dbo.{table} ORDER BY n",
        f"SELECT {names} FROM dbo.{table} ORDER BY n",
        f"SELECT {names} FROM dbo.{table} WHERE n >= 0",
        f"SELECT {names} FROM cdc.{table}_CT ORDER BY n",
        f"SELECT {names} FROM {changes} ORDER BY n",
    ]


@settings(max_examples=SHAPES, deadline=None, suppress_health_check=list(HealthCheck))
@given(shape=shapes())
def test_every_driver_reads_what_was_inserted(
    bench: Bench, server: StandIn, shape: tuple[list[Column], list[list[Cell]], list[str]]
) -> None:
    columns, rows, writers = shape
    table = f"s_{secrets.token_hex(4)}"
    kept = server.engine.blocks
    assert isinstance(kept, blocks.RowBlocks)
    expected = [[cell.expected for cell in row] for row in rows]
    instants = [[in_utc(*pair) for pair in zip(columns, row, strict=True)] for row in expected]
    deleted = [[None if c.type in LARGE else value for c, value in zip(columns, row, strict=True)] for row in expected]
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (("BLOCK", 2), ("WORTHWHILE", 1), ("_PATIENCE", 10**9)):
            patched.setattr(blocks, name, value)
        bench.create(table, columns)
        for row, writer in zip(rows, writers, strict=True):
            bench.insert(table, row, writer)
        served, problems = kept.served, list[str]()
        for query in reads(table, columns):
            for name in ROW_READERS:
                found = bench.clients[name].execute(query)
                problems += differences(name, query, columns, expected, found)
            problems += differences("arrow", query, columns, instants, bench.arrow(query))
        bench.odbc.execute(f"DELETE dbo.{table}")
        images = f"SELECT {', '.join(c.name for c in columns)} FROM cdc.{table}_CT WHERE __$operation = 1 ORDER BY n"
        problems += differences("odbc18", images, columns, deleted, bench.odbc.execute(images))
        assert kept.served - served >= 2 * len(rows) * (len(ROW_READERS) + 1), "blocks were not used"
        bench.drop(table)
    assert not problems, "\n".join(problems[:20])
