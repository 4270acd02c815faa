"""A part of a task that is only taken apart by who needs it.

The tasks of a job travel together, because they share most of what they hold, and each worker loads all of them to carry one
out. A part that tasks do not share is packed: a worker then loads that of its own task only.
"""

import pickle
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Packed(Generic[T]):
    """A value that is pickled as bytes of its own, and loaded from them at the first use.

    Args:
        value: what `get` returns; None if it is to be loaded.
        data: the value as bytes, if it is to be loaded.
    """

    def __init__(self, value: T | None, data: bytes = b"") -> None:
        self._value, self._data = value, data

    def get(self) -> T:
        """The value."""
        if self._data:
            self._value, self._data = pickle.loads(self._data), b""  # noqa: S301 - our own driver wrote it
        assert self._value is not None  # noqa: S101 - it was given, or loaded just now
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (None, self._data or pickle.dumps(self._value))
