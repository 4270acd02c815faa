"""Counts in regular expressions: what they would write out is known, and refused, before anything is compiled."""

import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.config.load import config_of
from cdc_assets.config.patterns import MAX_REPEATED, PatternError, compiled, matches
from cdc_assets.config.repetitions import written_out
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.unit.config.minimum import MINIMUM

COUNTED = [
    ("a", 1), ("a{3}", 3), ("a{3,}", 3), ("a{3,900}", 3), ("a{0}", 1), ("(ab{2}){3}", 9), ("(?:ab){2}c", 5),
    ("(?P<x>a){4}(?=b{2})", 6), (r"\{9}", 3), ("[a{9}]{2}", 2), ("[]{9}]", 1), (r"[\]{9}]", 1), ("a(?#b{9}){2}", 2),
    ("((a{10}){10}){10}", 1000), ("(?x:(a{10}) {10})", 100), ("a{x}", 4), ("", 0), (")", 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "parts"), COUNTED)
def test_parts_of_an_expression_are_counted(text: str, parts: int) -> None:
    assert written_out(text) == parts


BOMBS = ["dbo.a{10000000}", "a{999999999}", "a{" + "9" * 5000 + "}", "((a{100}){100}){100}", "(?:a{65535}){65535}",
         "(?x) (a{5000}) {5000}", "(a{5000})(?#b){5000}", "a{9999}" * 20, "(?x)(a{5000})# b\n{5000}"]  # fmt: skip


@pytest.mark.parametrize("text", BOMBS)
def test_counts_that_take_all_memory_are_refused_at_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex, "compile", lambda *_: pytest.fail("it is compiled"))
    begun = time.process_time()
    with pytest.raises(PatternError, match=f"more than {MAX_REPEATED}"):
        compiled(text)
    with pytest.raises(ConfigurationError, match=r"table\.include\.list.*does not compile"):
        config_of(MINIMUM | {"table.include.list": text.replace(",", r"\,")}, {})
    assert time.process_time() - begun < 1


@pytest.mark.long
def test_long_lists_and_ordinary_counts_are_compiled() -> None:
    names = "|".join(f"orders_{number:05}" for number in range(20_000))
    assert matches(names, "orders_19999")
    assert matches("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "0a1b2c3d-0000-4000-8000-0123456789ab")


@given(st.text(st.sampled_from("ab(){}[]\\,?:#x 0123456789|*+^-"), max_size=40))
def test_any_text_is_counted(text: str) -> None:
    assert written_out(text) >= 0
