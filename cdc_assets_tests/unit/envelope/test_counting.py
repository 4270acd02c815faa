"""Positions of READs, made many at once, are those that one makes one by one."""

from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.envelope.number_texts import hexadecimal, number_texts

NEAR_A_POWER = st.builds(lambda power, less: max(0, (1 << power) - less), st.integers(0, 32), st.integers(0, 300))


@given(
    st.sampled_from(["", "a/", "b:0000", "x" * 80]),
    st.integers(0, 2**32 - 1) | NEAR_A_POWER,
    st.integers(0, 400),
    st.sampled_from(["/0", "", "/ot"]),
)
def test_any_counts_are_made(head: str, first: int, rows: int, tail: str) -> None:
    texts = [f"{head}{hexadecimal(number)}{tail}" for number in range(first, first + rows)]
    assert number_texts(head, first, rows, tail).to_pylist() == texts


def test_upper_digits_change_in_the_middle() -> None:
    texts = number_texts("", 2**20 - 70_000, 140_000, "").to_pylist()
    assert texts == [hexadecimal(number) for number in range(2**20 - 70_000, 2**20 + 70_000)]


def test_numbers_begin_again_behind_32_bits() -> None:
    assert number_texts("a", 2**32 - 2, 4, "z").to_pylist() == [
        "affff:fffez",
        "affff:ffffz",
        "a0000:0000z",
        "a0000:0001z",
    ]
