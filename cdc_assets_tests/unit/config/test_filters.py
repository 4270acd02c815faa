"""Filters match whole names, ignore letter case, and keep the snapshot order."""

import time
from unittest.mock import Mock

import pytest

from cdc_assets.config import patterns
from cdc_assets.config.column_rules import rule_for
from cdc_assets.config.filters import ColumnFilter, Names, TableFilter
from cdc_assets.config.patterns import Patience
from cdc_assets.config.settings import ColumnRule, EventSettings, FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column
from cdc_assets.envelope.rules import message_key
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
    assert len(TableFilter(FilterSettings(max_tables=3, limit_action="fail")).require(ALL)) == 3
    with pytest.raises(ConfigurationError, match=r"guardrail\.collections\.max 2 .* 3 tables"):
        TableFilter(FilterSettings(max_tables=2, limit_action="fail")).require(ALL)
    assert len(TableFilter(FilterSettings(max_tables=2)).require(ALL)) == 3
    assert "guardrail.collections.max" in caplog.text
    narrow = FilterSettings(table_include=("dbo.Orders",), max_tables=2, limit_action="fail")
    assert TableFilter(narrow).require(ALL) == [ORDERS]
    with pytest.raises(ConfigurationError, match="4 tables"):
        TableFilter(narrow).require(ALL, guard_all=True)


def test_exclusive_lists_and_broken_expressions() -> None:
    with pytest.raises(ConfigurationError, match=r"table\.exclude\.list"):
        TableFilter(FilterSettings(table_include=("a",), table_exclude=("b",)))
    with pytest.raises(ConfigurationError, match=r"schema\.include\.list.*compiles"):
        TableFilter(FilterSettings(schema_include=("(",)))


SLOW = r"(?:.|..)*(?=!)"
"""Tries all ways of cutting a name into ones and twos."""
LONG = TableId("Sales", "dbo", "a" * 100)


def test_an_expression_that_tries_all_ways_ends_as_an_error_of_its_property(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MATCH_S", 0.1)
    with pytest.raises(ConfigurationError, match=r"table\.exclude\.list.*takes too long to match 'dbo\.aaa"):
        TableFilter(FilterSettings(table_exclude=(SLOW,))).require([ORDERS, LONG])
    with pytest.raises(ConfigurationError, match=r"column\.include\.list.*takes too long"):
        ColumnFilter(EventSettings("shop", column_include=(SLOW,))).accepts(LONG, "id")
    with pytest.raises(ConfigurationError, match=r"column\.mask\.with\.<length>\.chars.*takes too long"):
        rule_for(LONG, Column("c", "varchar", 1, nullable=True), [ColumnRule("mask", (SLOW,), 3)])
    with pytest.raises(ConfigurationError, match=r"message\.key\.columns.*takes too long"):
        message_key(LONG, ["id"], [f"{SLOW}:id"])
    assert TableFilter(FilterSettings(table_exclude=(SLOW,))).select([ORDERS]) == [ORDERS]


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


def test_a_busy_machine_makes_no_expression_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads take the processor: time goes by, and `regex` counts theirs."""
    patience = patterns.Patience(0.5)
    wall = iter(range(0, 10_000, 100))
    monkeypatch.setattr(time, "monotonic", lambda: next(wall))
    match, left = Mock(side_effect=[TimeoutError, TimeoutError, True]), patience.left
    assert patience.of(match)
    assert len(match.mock_calls) == 3
    assert 0.4 < patience.left <= left

    name = f"orders_{time.process_time_ns()}"
    expression = Mock(fullmatch=Mock(side_effect=[TimeoutError, name]))
    monkeypatch.setattr(patterns, "compiled", lambda *_, **__: expression)
    assert patterns.matches(name, name)


def test_what_takes_all_of_its_time_is_given_up() -> None:
    def forever(left: float) -> bool:
        end = time.thread_time() + left
        while time.thread_time() < end:
            pass
        raise TimeoutError

    with pytest.raises(TimeoutError):
        patterns.Patience(0.05).of(forever)


NAMES = [
    "dbo.orders",
    "DBO.Orders",
    "dboxorders",
    "dbo.\u212aeys",
    "dbo.keys",
    "dbo.stra\u00dfe",
    "dbo.strasse",
    "dbo.my table",
    "dbo.a#b",
]
LISTS = [
    (r"dbo\.orders",),
    ("dbo.orders",),
    (r"dbo\.keys", r"dbo\.strasse"),
    (r"dbo\.stra\u00dfe",),
    (r".*keys", r"dbo\.keys", r"dbo\.orders", r"DBO\..*"),
    (r"dbo\.MY table", r"dbo\.a#b", r"dbo\.orders", r"dbo\.orders"),
]


@pytest.mark.parametrize("texts", LISTS)
def test_plain_names_are_found_as_their_expressions_would_find_them(texts: tuple[str, ...]) -> None:
    names = Names("table.include.list", texts)
    for name in NAMES:
        wanted = [place for place, text in enumerate(texts) if patterns.matches(text, name, ignore_case=True)]
        assert names.place(name) == min(wanted, default=None)
    for given in (NAMES, NAMES[:3], NAMES[3:5], NAMES[5:6]):
        wanted_texts = [t for t in texts if not any(patterns.matches(t, name, ignore_case=True) for name in given)]
        assert list(names.unmatched(given)) == wanted_texts


def test_long_lists_of_plain_names_cost_no_matching(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them over a thousand tables would take ten seconds."""
    monkeypatch.setattr("cdc_assets.config.filters.match_any", Mock(side_effect=AssertionError))
    tables = [TableId("Sales", "dbo", f"t{number:04d}") for number in range(1000)]
    listed = tuple(rf"dbo\.T{number:04d}" for number in range(999, -1, -1))
    assert TableFilter(FilterSettings(table_include=listed)).select(tables) == tables[::-1]
    monkeypatch.setattr("cdc_assets.config.filters.match_any", lambda _, names: bool(list(names)))
    missing = Names("table.include.list", (*listed, r"dbo\.t1000"))
    assert list(missing.unmatched([table.within_database for table in tables])) == [r"dbo\.t1000"]


def test_comparison_ends_when_its_time_is_over() -> None:
    assert list(Names("table.include.list", (r"dbo\.no",)).unmatched(["dbo.yes"], Patience(0))) == []
