"""Filters match whole names, ignore letter case, and keep the snapshot order."""

import pytest

from cdc_assets.config.filters import ColumnFilter, TableFilter
from cdc_assets.config.settings import EventSettings, FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError

ORDERS = TableId("Sales", "dbo", "Orders")
LINES = TableId("Sales", "dbo", "OrderLines")
STOCK = TableId("Sales", "store", "stock")
SYSTEM = TableId("Sales", "cdc", "change_tables")
ALL = [SYSTEM, ORDERS, LINES, STOCK]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (FilterSettings(), [LINES, ORDERS, STOCK]),
        (FilterSettings(table_include=(r"DBO\.ORDERS",)), [ORDERS]),
        (FilterSettings(table_include=(r"dbo\.Order",)), []),
        (FilterSettings(table_include=(r"store\..*", r"dbo\.Order.*")), [STOCK, LINES, ORDERS]),
        (FilterSettings(table_exclude=(r"dbo\..*",)), [STOCK]),
        (FilterSettings(schema_include=("STORE",)), [STOCK]),
        (FilterSettings(schema_exclude=("store",)), [LINES, ORDERS]),
        (FilterSettings(schema_include=("dbo",), table_exclude=(r".*lines",)), [ORDERS]),
        (FilterSettings(ignore_builtin=False, schema_include=("cdc",)), [SYSTEM]),
        (FilterSettings(table_include=(r"Sales\.dbo\.Orders",)), []),
    ],
)
def test_tables(settings: FilterSettings, expected: list[TableId]) -> None:
    assert TableFilter(settings).select(ALL) == expected


def test_no_table_is_an_error_that_names_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match=r"dbo\.nope.*dbo\.OrderLines, dbo\.Orders, store\.stock"):
        TableFilter(FilterSettings(table_include=(r"dbo.nope",))).require(ALL)
    with pytest.raises(ConfigurationError, match="filters that match a table"):  # a signal table alone is no capture
        TableFilter(FilterSettings(table_include=(r"dbo.nope",), also=frozenset({str(ALL[0]).lower()}))).require(ALL)


def test_guardrail(caplog: pytest.LogCaptureFixture) -> None:
    assert len(TableFilter(FilterSettings(most_tables=3, limit_action="fail")).require(ALL)) == 3
    with pytest.raises(ConfigurationError, match=r"guardrail\.collections\.max 2 .* 3 tables"):
        TableFilter(FilterSettings(most_tables=2, limit_action="fail")).require(ALL)
    assert len(TableFilter(FilterSettings(most_tables=2)).require(ALL)) == 3
    assert "guardrail.collections.max" in caplog.text


def test_exclusive_lists_and_broken_expressions() -> None:
    with pytest.raises(ConfigurationError, match=r"table\.exclude\.list"):
        TableFilter(FilterSettings(table_include=("a",), table_exclude=("b",)))
    with pytest.raises(ConfigurationError, match=r"schema\.include\.list.*compiles"):
        TableFilter(FilterSettings(schema_include=("(",)))


@pytest.mark.parametrize(
    ("lists", "accepted"),
    [
        ({"column_include": (r"dbo\.orders\.[ac]",)}, "ac"),
        ({"column_exclude": (r"sales\.dbo\.orders\.a",)}, "bc"),
        ({"column_include": ("nothing",)}, ""),
        ({}, "abc"),
    ],
)
def test_columns(lists: dict[str, tuple[str, ...]], accepted: str) -> None:
    columns = ColumnFilter(EventSettings("shop", **lists))  # type: ignore[arg-type]
    assert [name for name in "abc" if columns.accepts(ORDERS, name)] == list(accepted)
