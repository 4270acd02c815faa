"""Catalogue rows become core values."""

from datetime import UTC, datetime, timedelta

import pytest

from cdc_assets.adapters.sqlserver.rows import column_of, commit_time, instances_of, lsn_above_zero_of, schema_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn

TABLE = TableId("Sales", "dbo", "t")


def row(name: str, base: str, declared: str | None = None, size: int = 4, **more: object) -> tuple[object, ...]:
    values = {
        "precision": 0,
        "scale": 0,
        "nullable": True,
        "identity": False,
        "computed": False,
        "default": None,
    } | more
    return (7, 1, name, base, declared or base, size, *values.values(), more.get("collation"))[:13]


@pytest.mark.parametrize(
    ("given_row", "expected"),
    [
        (row("c", "nvarchar", size=80), {"length": 40}),
        (row("c", "nvarchar", size=-1), {"length": -1}),
        (row("c", "varchar", size=80), {"length": 80}),
        (row("c", "varbinary", size=-1), {"length": -1}),
        (row("c", "text", size=16), {"length": None}),
        (row("c", "int"), {"length": None, "precision": None, "scale": None}),
        (row("c", "decimal", precision=18, scale=2), {"precision": 18, "scale": 2}),
        (row("c", "datetime2", precision=27, scale=7), {"precision": None, "scale": 7}),
        (row("c", "money", precision=19, scale=4), {"precision": None, "scale": None}),
        (row("c", "nvarchar", "Phone", size=40), {"alias": "Phone", "type_name": "nvarchar"}),
        (row("c", "nvarchar", "sysname", size=256), {"alias": "sysname", "length": 128}),
        (row("c", "hierarchyid"), {"alias": None, "type_name": "hierarchyid"}),
    ],
)
def test_columns(given_row: tuple[object, ...], expected: dict[str, object]) -> None:
    column = column_of(given_row)
    for name, value in expected.items():
        assert getattr(column, name) == value


@pytest.mark.parametrize("nothing", [None, bytes(10), bytearray(10)])
def test_server_that_has_read_nothing_has_no_lsn(nothing: bytes | None) -> None:
    assert lsn_above_zero_of(nothing) is None
    assert lsn_above_zero_of(bytes(9) + b"\1") == Lsn.from_int(1)


def test_first_unique_index_is_the_key() -> None:
    schema = schema_of(TABLE, [row("a", "int")], [(3, "b"), (3, "a"), (5, "c")])
    assert schema.key == ("b", "a")
    assert schema_of(TABLE, [row("a", "int")], []).key == ()
    assert schema.object_id == 7


def test_instances() -> None:
    early, late = bytes(9) + b"\1", bytes(9) + b"\2"
    old, new = datetime(2026, 1, 1), datetime(2026, 1, 2)  # noqa: DTZ001
    tables = [
        (12, 7, "dbo", "t", "dbo_t_b", late, new, None),
        (11, 7, "dbo", "t", "dbo_t_a", early, old, late),
        (13, 7, "dbo", "t", "dbo_t_again", late, old, None),
        (14, 8, None, None, "gone", early, old, None),
        (15, 7, "dbo", "t", "without_a_start", None, new, None),
        (16, 7, "dbo", "t", "without_columns", late, new, None),
    ]
    columns = [(11, "a", 1), (11, "b", 2), (12, "a", 1), (12, "c", 4), (13, "a", 1), (15, "a", 1)]
    found = instances_of("Sales", tables, columns)
    assert [(instance.name, instance.columns) for instance in found] == [
        ("dbo_t_a", ("a", "b")),
        ("dbo_t_again", ("a",)),
        ("dbo_t_b", ("a", "c")),
    ]
    assert [(instance.column_ids, instance.altered) for instance in found] == [
        ((1, 2), Lsn(late)),
        ((1,), None),
        ((1, 4), None),
    ]
    assert [instance.change_table_id for instance in found] == [11, 13, 12]


def test_commit_time_takes_the_servers_offset() -> None:
    assert commit_time(datetime(2026, 1, 1, 12), 90) == datetime(2026, 1, 1, 10, 30, tzinfo=UTC)  # noqa: DTZ001
    assert commit_time(datetime(2026, 1, 1, 12), -60).utcoffset() == timedelta(hours=-1)  # noqa: DTZ001
