"""In which structure an instance's rows arrive after its table was changed under it."""

from dataclasses import replace

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.schema import CaptureInstance, Column, TableSchema
from cdc_assets.history.structure import captured_structure, followed, with_nulls, without_namesakes

TABLE = TableId("Sales", "dbo", "orders")
ID = Column("id", "int", 1, nullable=False)
AMOUNT = Column("amount", "int", 2, nullable=False, default="((0))")
STAMP = Column("stamp", "timestamp", 3, nullable=False)
SCHEMA = TableSchema(TABLE, 7, (ID, AMOUNT, STAMP), ("id",))
INSTANCE = CaptureInstance(TABLE, 7, "a", ZERO_LSN, ("id", "amount", "stamp"), None, (1, 2, 3))
STORED = TableSchema(
    INSTANCE.change_table,
    9,
    (Column("id", "int", 6), Column("amount", "int", 7), Column("stamp", "binary", 8, length=8)),
)


def stored_as(**changes: object) -> TableSchema:
    """The change table with another type of `amount`."""
    [one, amount, *rest] = STORED.columns
    return replace(STORED, columns=(one, replace(amount, **changes), *rest))  # type: ignore[arg-type]


def arriving(source: TableSchema, stored: TableSchema = STORED) -> TableSchema:
    return captured_structure(source, stored, INSTANCE)


def test_untouched_table_arrives_as_it_is() -> None:
    assert arriving(SCHEMA) == SCHEMA
    assert followed(SCHEMA, SCHEMA) == SCHEMA


def test_types_are_those_of_the_change_table() -> None:
    wide = arriving(replace(SCHEMA, columns=(ID, replace(AMOUNT, type_name="bigint"), STAMP)))
    assert wide.column("amount") == AMOUNT  # the capture job has not come to the statement yet
    assert arriving(SCHEMA, stored_as(type_name="bigint")).column("amount") == replace(AMOUNT, type_name="bigint")


@pytest.mark.parametrize("again", [(), (Column("amount", "date", 4),)])
def test_column_that_is_gone_stays_as_nullable_also_if_another_has_its_name(again: tuple[Column, ...]) -> None:
    source = replace(SCHEMA, columns=(ID, STAMP, *again))
    assert arriving(source).column("amount") == Column("amount", "int", 2)
    assert without_namesakes(source, INSTANCE).column("amount") is None


def test_columns_that_are_not_captured_stay() -> None:
    more = Column("more", "date", 4)
    assert arriving(replace(SCHEMA, columns=(*SCHEMA.columns, more))).column("more") == more
    assert without_namesakes(replace(SCHEMA, columns=(*SCHEMA.columns, more)), INSTANCE).column("more") == more


def test_only_what_rows_need_is_followed() -> None:
    loose = replace(SCHEMA, columns=(ID, replace(AMOUNT, nullable=True, default=None), STAMP))
    assert followed(SCHEMA, loose) == loose
    assert followed(loose, SCHEMA) == loose
    assert followed(SCHEMA, replace(SCHEMA, columns=(ID, replace(AMOUNT, default="((1))"), STAMP))) == SCHEMA
    wide = replace(AMOUNT, type_name="bigint")
    assert followed(loose, arriving(SCHEMA, stored_as(type_name="bigint"))).column("amount") == replace(
        wide, nullable=True
    )
    assert with_nulls(SCHEMA, {"amount"}).column("amount") == replace(AMOUNT, nullable=True)
