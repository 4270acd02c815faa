"""A seeded random workload over tables of every type, written as T-SQL literals.

Literals, not parameters: drivers round some types on writing (a seventh digit, a time's
fraction), and what the two readers are compared on must be what the server holds.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Rng = random.Random  # noqa: S311 - a workload that can be made again
Maker = Callable[[Rng], str]

TEXTS = (
    "",
    "a",
    "plain text",
    "Zoë ñandú",
    "日本語",
    "emoji 😀 tail",
    'quote " and \\ slash',
    "tab\tline\nbreak",
    "  padded  ",
    "it's",
)


def quoted(text: str, unicode: bool) -> str:
    """A string literal."""
    return f"{'N' if unicode else ''}'{text.replace(chr(39), chr(39) * 2)}'"


def integer(low: int, high: int) -> Maker:
    return lambda rng: str(rng.choice((low, high, 0 if low <= 0 else low, rng.randint(low, high))))


def decimal(precision: int, scale: int) -> Maker:
    def make(rng: Rng) -> str:
        largest = 10**precision - 1
        scaled = rng.choice((largest, -largest, 0, 1, rng.randint(-largest, largest)))
        digits = f"{abs(scaled):0{scale + 1}d}"
        whole, fraction = (digits[:-scale], "." + digits[-scale:]) if scale else (digits, "")
        return f"{'-' if scaled < 0 else ''}{whole}{fraction}"

    return make


def text(length: int, unicode: bool) -> Maker:
    def make(rng: Rng) -> str:
        chosen = rng.choice(TEXTS)
        if not unicode:
            chosen = chosen.encode("ascii", "ignore").decode()
        return quoted(chosen[: length // 2], unicode)

    return make


def binary(length: int) -> Maker:
    return lambda rng: "0x" + rng.randbytes(rng.randint(0, length)).hex()


def date_text(rng: Rng, first_year: int, last_year: int) -> str:
    return f"{rng.randint(first_year, last_year):04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def time_text(rng: Rng, digits: int) -> str:
    fraction = f".{rng.randrange(10**digits):0{digits}d}" if digits else ""
    return f"{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}{fraction}"


def moment(kind: str, digits: int, first_year: int, last_year: int) -> Maker:
    def make(rng: Rng) -> str:
        return f"CAST('{date_text(rng, first_year, last_year)}T{time_text(rng, digits)}' AS {kind})"

    return make


def zoned(digits: int) -> Maker:
    def make(rng: Rng) -> str:
        offset = rng.choice(("+00:00", "+11:00", "-03:30", "+05:45", "-12:00", "+14:00"))
        return f"CAST('{date_text(rng, 1971, 2260)} {time_text(rng, digits)} {offset}' AS datetimeoffset({digits}))"

    return make


TYPES: dict[str, tuple[str, Maker]] = {
    "c_bit": ("bit", integer(0, 1)),
    "c_tinyint": ("tinyint", integer(0, 255)),
    "c_smallint": ("smallint", integer(-(2**15), 2**15 - 1)),
    "c_int": ("int", integer(-(2**31), 2**31 - 1)),
    "c_bigint": ("bigint", integer(-(2**63) + 1, 2**63 - 1)),
    "c_real": ("real", lambda rng: repr(rng.choice((0.0, 1.5, -2.25, 3.4e30, rng.uniform(-1e6, 1e6))))),
    "c_float": ("float", lambda rng: repr(rng.choice((0.0, 1e300, -1e-300, 0.1, rng.uniform(-1e9, 1e9))))),
    "c_decimal_8_2": ("decimal(8,2)", decimal(8, 2)),
    "c_decimal_18_0": ("decimal(18,0)", decimal(18, 0)),
    "c_decimal_38_10": ("decimal(38,10)", decimal(38, 10)),
    "c_numeric_12_4": ("numeric(12,4)", decimal(12, 4)),
    "c_money": ("money", decimal(18, 4)),
    "c_smallmoney": ("smallmoney", decimal(9, 4)),
    "c_char": ("char(10)", text(10, False)),
    "c_varchar": ("varchar(40)", text(40, False)),
    "c_nchar": ("nchar(10)", text(10, True)),
    "c_nvarchar": ("nvarchar(40)", text(40, True)),
    "c_varchar_max": ("varchar(max)", text(40, False)),
    "c_nvarchar_max": ("nvarchar(max)", text(40, True)),
    "c_xml": ("xml", lambda rng: f"N'<a n=\"{rng.randrange(1000)}\">{rng.choice(('x', 'é', '日本'))}</a>'"),
    "c_uniqueidentifier": (
        "uniqueidentifier",
        lambda rng: f"'{rng.randbytes(4).hex()}-0000-4000-8000-{rng.randbytes(6).hex()}'",
    ),
    "c_binary": ("binary(6)", binary(6)),
    "c_varbinary": ("varbinary(20)", binary(20)),
    "c_varbinary_max": ("varbinary(max)", binary(40)),
    "c_date": ("date", lambda rng: f"'{date_text(rng, 1, 9999)}'"),
    "c_time_0": ("time(0)", lambda rng: f"'{time_text(rng, 0)}'"),
    "c_time_3": ("time(3)", lambda rng: f"'{time_text(rng, 3)}'"),
    "c_time_6": ("time(6)", lambda rng: f"'{time_text(rng, 6)}'"),
    "c_time_7": ("time(7)", lambda rng: f"'{time_text(rng, 7)}'"),
    "c_smalldatetime": ("smalldatetime", moment("smalldatetime", 0, 1900, 2078)),
    "c_datetime": ("datetime", moment("datetime", 3, 1753, 9998)),
    "c_datetime2_0": ("datetime2(0)", moment("datetime2(0)", 0, 1, 9999)),
    "c_datetime2_3": ("datetime2(3)", moment("datetime2(3)", 3, 1, 9999)),
    "c_datetime2_6": ("datetime2(6)", moment("datetime2(6)", 6, 1, 9999)),
    "c_datetime2_7": ("datetime2(7)", moment("datetime2(7)", 7, 1678, 2261)),
    "c_datetimeoffset_3": ("datetimeoffset(3)", zoned(3)),
    "c_datetimeoffset_7": ("datetimeoffset(7)", zoned(7)),
}
"""Column → declaration and a maker of literals within SQL Server's ranges."""


@dataclass(frozen=True)
class TableModel:
    """A table of the workload.

    Args:
        name: without schema.
        keys: key columns with their declarations; empty for a keyless table, which then has a plain `id`.
        columns: nullable columns and how their literals are made.
    """

    name: str
    keys: tuple[str, ...]
    columns: dict[str, tuple[str, Maker]] = field(default_factory=dict)

    def create(self) -> str:
        """CREATE TABLE."""
        key_columns = [f"{key} int NOT NULL" for key in self.keys or ("id",)]
        others = [f"{name} {declaration} NULL" for name, (declaration, _) in self.columns.items()]
        constraint = [f"PRIMARY KEY ({', '.join(self.keys)})"] if self.keys else []
        return f"CREATE TABLE dbo.{self.name} ({', '.join([*key_columns, *others, *constraint])})"

    def enable(self) -> str:
        """Enable change data capture."""
        return (
            f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{self.name}', "
            "@role_name = NULL, @supports_net_changes = 0"
        )


TABLES = (
    TableModel("all_types", ("id",), TYPES),
    TableModel("two_keys", ("a", "b"), {"note": TYPES["c_nvarchar"], "amount": TYPES["c_decimal_8_2"]}),
    TableModel("keyless", (), {"note": TYPES["c_varchar"], "at": TYPES["c_datetime2_3"]}),
)


class Workload:
    """Random statements that are valid for the rows that exist; equal seeds give equal texts.

    Args:
        seed: of the random numbers.
        tables: the tables to change.
        null_share: how often a value is NULL.
    """

    def __init__(self, seed: int, tables: tuple[TableModel, ...] = TABLES, null_share: float = 0.15) -> None:
        self.rng = Rng(seed)
        self.tables = tables
        self.null_share = null_share
        self.rows: dict[str, list[tuple[int, ...]]] = {table.name: [] for table in tables}
        self._next = 0

    def setup(self) -> Iterator[str]:
        """CREATE TABLE and enabling of capture for each table."""
        for table in self.tables:
            yield table.create()
            yield table.enable()

    def transactions(self, count: int) -> Iterator[str]:
        """`count` batches, each one transaction; about one in twelve is rolled back."""
        for _ in range(count):
            statements_count = self.rng.choice((1, 1, 1, 2, 3, 5, 12))
            before = {name: list(keys) for name, keys in self.rows.items()}
            statements = ";\n".join(self._statement() for _ in range(statements_count))
            if self.rng.random() < 0.08:
                self.rows = before
                yield f"BEGIN TRAN;\n{statements};\nROLLBACK TRAN"
            else:
                yield f"BEGIN TRAN;\n{statements};\nCOMMIT TRAN"

    def _statement(self) -> str:
        table = self.rng.choice(self.tables)
        keys = self.rows[table.name]
        if len(keys) < 3:
            return self._insert(table)
        kind = self.rng.choices(("insert", "update", "delete", "key"), (4, 5, 2, 1 if table.keys else 0))[0]
        return {"insert": self._insert, "update": self._update, "delete": self._delete, "key": self._change_key}[kind](
            table
        )

    def _insert(self, table: TableModel) -> str:
        key = self._new_key(table)
        self.rows[table.name].append(key)
        values = [*map(str, key), *(self._value(make) for _, make in table.columns.values())]
        return f"INSERT dbo.{table.name} ({', '.join([*(table.keys or ('id',)), *table.columns])}) VALUES ({', '.join(values)})"

    def _update(self, table: TableModel) -> str:
        key = self.rng.choice(self.rows[table.name])
        chosen = self.rng.sample(list(table.columns), self.rng.randint(1, min(4, len(table.columns))))
        sets = ", ".join(f"{name} = {self._value(table.columns[name][1])}" for name in chosen)
        return f"UPDATE dbo.{table.name} SET {sets} WHERE {self._where(table, key)}"

    def _delete(self, table: TableModel) -> str:
        key = self.rng.choice(self.rows[table.name])
        self.rows[table.name].remove(key)
        return f"DELETE dbo.{table.name} WHERE {self._where(table, key)}"

    def _change_key(self, table: TableModel) -> str:
        keys = self.rows[table.name]
        old = self.rng.choice(keys)
        new = self._new_key(table)
        keys[keys.index(old)] = new
        sets = ", ".join(f"{name} = {value}" for name, value in zip(table.keys, new, strict=True))
        return f"UPDATE dbo.{table.name} SET {sets} WHERE {self._where(table, old)}"

    def _new_key(self, table: TableModel) -> tuple[int, ...]:
        self._next += 1
        return tuple([self._next] + [self.rng.randrange(5) for _ in table.keys[1:]])

    def _value(self, make: Maker) -> str:
        return "NULL" if self.rng.random() < self.null_share else make(self.rng)

    @staticmethod
    def _where(table: TableModel, key: tuple[int, ...]) -> str:
        return " AND ".join(f"{name} = {value}" for name, value in zip(table.keys or ("id",), key, strict=True))
