"""What is told when a table has moved away from its recorded structure."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance, Column, InstanceId, InstanceOptions, TableSchema
from cdc_assets.history.drift import changes_between, drift_of
from cdc_assets.history.records import HistoryEntry

TABLE = TableId("Sales]Db", "dbo", "o'rders")
ID = Column("id", "int", 1, nullable=False)
NOTE = Column("note", "nvarchar", 2, length=50)
AMOUNT = Column("amount", "decimal", 3, precision=10, scale=2, default="((0))")
SCHEMA = TableSchema(TABLE, 7, (ID, NOTE, AMOUNT), ("id",))
ENTRY = HistoryEntry(
    "CREATE", SCHEMA, ("id", "note", "amount"), "a", Lsn.from_int(5), datetime(2026, 10, 1, tzinfo=UTC)
)


def instance(name: str, start: int) -> CaptureInstance:
    return CaptureInstance(TABLE, 7, name, Lsn.from_int(start), ("id", "note", "amount"))


def told(current: TableSchema, *statements: str, entry: HistoryEntry = ENTRY) -> list[str]:
    return [str(found) for found in drift_of(entry, current, [instance("a", 5)], A, statements).differences]


def with_column(place: int, **changes: object) -> TableSchema:
    columns = list(SCHEMA.columns)
    columns[place] = replace(columns[place], **changes)  # type: ignore[arg-type]
    return replace(SCHEMA, columns=tuple(columns))


A = InstanceId("a")
STATE = Column("state", "char", 4, length=2)


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (SCHEMA, []),
        (replace(SCHEMA, columns=(*SCHEMA.columns, STATE)), ["state added (char(2))"]),
        (replace(SCHEMA, columns=(ID, NOTE)), ["amount dropped (decimal(10, 2))"]),
        (with_column(1, name="remark"), ["remark renamed (note → remark)"]),
        (with_column(1, length=-1), ["note retyped (nvarchar(50) → nvarchar(max))"]),
        (with_column(1, nullable=False), ["note nullability (NULL → NOT NULL)"]),
        (with_column(2, default=None), ["amount default (((0)) → none)"]),
        (replace(SCHEMA, key=()), ["key key (id)"]),
    ],
)
def test_each_kind_of_difference(current: TableSchema, expected: list[str]) -> None:
    assert told(current) == expected


def test_a_column_left_out_on_purpose_is_no_drift_but_one_added_before_the_record_is() -> None:
    both = replace(SCHEMA, columns=(*SCHEMA.columns, STATE))
    entry = replace(ENTRY, schema=both)
    assert told(both, entry=entry) == []
    assert told(both, "ALTER TABLE dbo.orders ADD state char(2)", entry=entry) == ["state added (char(2))"]
    assert told(both, "ALTER TABLE dbo.orders ADD states char(2)", entry=entry) == []


def test_remedy_makes_a_second_instance_and_drops_the_first_when_it_is_read() -> None:
    current = with_column(1, nullable=False)
    alone = drift_of(ENTRY, current, [instance("a", 5)], A)
    assert alone.remedy == (
        "EXEC [Sales]]Db].sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'o''rders', "
        "@role_name = NULL, @capture_instance = N'dbo_o''rders_v2', @supports_net_changes = 0;"
    )
    two = [instance("a", 5), instance("dbo_o'rders_v2", 60)]
    for left in (two, two[1:]):
        waiting = drift_of(ENTRY, current, left, A)
        assert waiting.removable is None
        assert waiting.remedy.startswith("wait until the capture has passed")
    passed = drift_of(ENTRY, current, two, InstanceId("dbo_o'rders_v2"))
    assert passed.removable == "a"
    assert "sp_cdc_disable_table" in passed.removal
    assert "N'dbo_o''rders_v3'" in passed.remedy


def test_a_name_that_was_used_before_is_not_given_again() -> None:
    current = with_column(1, nullable=False)
    told = drift_of(ENTRY, current, [instance("a", 5)], A, used=("DBO_o'rders_v2", "dbo_o'rders_v4"))
    assert "N'dbo_o''rders_v3'" in told.remedy


def test_second_instance_is_like_the_first_but_for_the_added_column() -> None:
    secret = Column("secret", "int", 4)
    both = replace(SCHEMA, columns=(*SCHEMA.columns, secret))
    current = replace(both, columns=(*both.columns, replace(STATE, ordinal=5)))
    options = InstanceOptions("cdc'reader", True, "by]note", "SLOW", partition_switch=False)
    drift = drift_of(replace(ENTRY, schema=both), current, [instance("a", 5)], A, options=options)
    assert [str(found) for found in drift.differences] == ["state added (char(2))"]
    assert drift.remedy.partition("@role_name")[2] == (
        " = N'cdc''reader', @capture_instance = N'dbo_o''rders_v2', @supports_net_changes = 1, @index_name = N'by]note', "
        "@captured_column_list = N'[id], [note], [amount], [state]', @filegroup_name = N'SLOW', @allow_partition_switch = 0;"
    )


def test_column_that_was_made_again_is_another_column() -> None:
    current = replace(SCHEMA, columns=(ID, NOTE, replace(AMOUNT, ordinal=4)))
    assert told(current) == ["amount dropped (decimal(10, 2))", "amount added (decimal(10, 2))"]


def test_changes_of_events() -> None:
    wide = replace(AMOUNT, precision=12)
    new = replace(ENTRY, schema=replace(SCHEMA, columns=(ID, wide, STATE)), captured=("id", "amount", "state"))
    assert [str(found) for found in changes_between(ENTRY, new)] == [
        "note dropped (nvarchar(50))",
        "amount retyped (decimal(10, 2) → decimal(12, 2))",
        "state added (char(2))",
    ]


def test_old_instance_is_reported_without_any_difference() -> None:
    drift = drift_of(ENTRY, SCHEMA, [instance("a", 5), instance("b", 6)], InstanceId("b"))
    assert (drift.differences, drift.remedy, drift.removable) == ((), "", "a")
