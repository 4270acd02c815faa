"""A part of a task is loaded by who needs it, and by nobody else."""

import pickle
from typing import Any

import pytest

from cdc_assets.core.packed import Packed


class _Loud:
    def __reduce__(self) -> tuple[object, ...]:
        return _refuse, ()


def _refuse() -> object:
    raise AssertionError("loaded")


def _there(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - written just now


def test_value_comes_back_as_it_was_also_after_a_second_journey() -> None:
    value = {"a": [1, 2], "b": []}
    packed = Packed(value)
    assert packed.get() is value
    there = _there(packed)
    again = _there(there)
    assert (there.get(), again.get()) == (value, value)
    assert there.get() is there.get()


def test_what_nobody_takes_is_not_loaded() -> None:
    others, own = _there([Packed(_Loud()), Packed(7)])
    assert own.get() == 7
    with pytest.raises(AssertionError, match="loaded"):
        others.get()
