"""Expressions mean what they mean in Java; the answers here are those of Java 17 (`Pattern.compile(…, CASE_INSENSITIVE)`)."""

from typing import Any

import pytest

from cdc_assets.config.column_rules import rule_for
from cdc_assets.config.filters import ColumnFilter, Names, TableFilter
from cdc_assets.config.kinds import REGEXES, split_list
from cdc_assets.config.patterns import PatternError, compiled, matches
from cdc_assets.config.settings import ColumnRule, EventSettings, FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column
from cdc_assets.envelope.naming import topic_name

KELVIN, LONG_S = "\u212a", "\u017f"
"""A sign and a letter that Unicode folds to `k` and `s`."""
JAVA = [
    (r"\w+", "größe", False),
    (r"\W+", "姓名", True),
    (r"[^\w.]+", "姓名", True),
    (r"[^\W]+", "ab", True),
    ("ÄRGER", "ärger", False),
    ("ÄRGER", "ÄRger", True),
    ("k", KELVIN, False),
    ("[a-z]", KELVIN, False),
    (LONG_S, "s", False),
    ("s", LONG_S, False),
    (r"\d", "٣", False),
    (r"\s", "\u00a0", False),
    (r"\s", "\x1c", False),
    (r"\s", "\x0b", True),
    (r"\Qdbo.a\E.*", "dbo.axx", True),
    (r"\Qdbo.a\E.*", "dboxaxx", False),
    (r"\Qa\b", r"a\b", True),
    (r"[\Qa]\E]+", "]a", True),
    (r"\Qa{\E{2}", "a{{", True),
    ("(?<n>a)b", "ab", True),
    ("[]a]+", "]a", True),
    ("[a{]+", "{a", True),
    (r"a\{x\}", "a{x}", True),
    ("a}", "a}", True),
    (r"[\w-.]+", "a-.", True),
    (r"[\w-.]+", "a+", False),
    (r"[^\d-a]", "-", False),
    ("a{2}+", "aa", True),
    ("a{0002}", "aa", True),
    (r"a{1,}\\{2}", r"aa\\", True),
]
REFUSED = [
    ("a{,3}", r"a plain brace is \\\{"),
    ("dbo.(?:foo){e<=1}", "begins no count"),
    ("a{x}", "begins no count"),
    ("a|b{", "begins no count"),
    ("[a[b]]", "class inside of a class"),
    ("[[:alpha:]]", "class inside of a class"),
    ("[a&&b]", "Possible set"),
    (r"\v", "another set of characters"),
    (r"[\v]", "another set of characters"),
    ("(?u)a", "flags"),
    (r"\p{L}", "bad escape"),
    (r"\h", "bad escape"),
]
"""What Java does not take either, or reads otherwise."""


@pytest.mark.parametrize(("expression", "name", "is_matched"), JAVA)
def test_names_are_matched_as_in_java(expression: str, name: str, is_matched: bool) -> None:
    assert matches(expression, name, ignore_case=True) == is_matched
    assert Names("table.include.list", (expression,)).match(name) == is_matched


@pytest.mark.parametrize(("expression", "reason"), REFUSED)
def test_what_java_reads_otherwise_is_refused(expression: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        compiled(expression)


@pytest.mark.parametrize(
    ("lists", "table", "is_captured"),
    [
        ({"table_exclude": (r"dbo\.\w+_log",)}, "größe_log", True),
        ({"table_include": (r"dbo\.\w+",)}, "订单", False),
        ({"table_include": (r"dbo\.kind",)}, KELVIN + "ind", False),
        ({"table_include": (r"dbo\.kind",)}, "KIND", True),
    ],
)
def test_tables_with_other_letters(lists: dict[str, Any], table: str, is_captured: bool) -> None:
    assert TableFilter(FilterSettings(**lists)).accepts(TableId("D", "dbo", table)) == is_captured


def test_a_mask_covers_a_column_of_another_script() -> None:
    rule = ColumnRule("hash", (r"dbo\.t\.[^\w.]+",), algorithm="SHA-256", salt="s")
    assert rule_for(TableId("D", "dbo", "t"), Column("姓名", "nvarchar", 1), (rule,)) == rule
    excluded = EventSettings("shop", column_exclude=(r"dbo\.t\.\W+",))
    assert not ColumnFilter(excluded).accepts(TableId("D", "dbo", "t"), "姓名")


def test_topic_names_may_keep_letters_of_every_script() -> None:
    settings = EventSettings("shop", sanitize_pattern=r"[^\w.-]")
    assert topic_name(TableId("D", "dbo", "订 单"), settings) == "shop.D.dbo.订_单"


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        (r"dbo\.a\\,dbo\.b", (r"dbo\.a\\", r"dbo\.b")),
        (r"a\,b,c", ("a,b", "c")),
        (r"a\\\,b,c", (r"a\\,b", "c")),
        (" a , b ", ("a", "b")),
        (",,a", ("a",)),
        ("", ()),
        ("a\\", ("a\\",)),
    ],
)
def test_lists_are_divided_as_the_connector_divides_them(text: str, entries: tuple[str, ...]) -> None:
    """Measured with its class `RegExSplitter`, which refuses the last."""
    assert split_list(text) == entries


@pytest.mark.parametrize("entries", [(r"dbo\.t{1,3}", r"dbo\.a"), (r"a\\", "b"), (r"a\\,b",), ("a", "b,c,")])
def test_items_of_a_list_stay_apart(entries: tuple[str, ...]) -> None:
    assert split_list(REGEXES.joined(entries)) == entries


def test_an_item_of_a_list_may_have_its_comma_as_in_a_text() -> None:
    assert split_list(REGEXES.joined([r"dbo\.t{1\,3}", r"a\\\,b"])) == (r"dbo\.t{1,3}", r"a\\,b")
