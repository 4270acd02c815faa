"""For what cannot be otherwise: an internal mistake shows at once and by name, not as an AttributeError later."""

from typing import TypeVar

T = TypeVar("T")


def certain(value: T | None, what: str) -> T:
    """The value, which must be there.

    Raises:
        RuntimeError: it is None, which is a fault of the engine itself.
    """
    if value is None:
        raise RuntimeError(f"the engine lost {what}")
    return value
