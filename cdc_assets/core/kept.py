"""A property that is computed once for each object, without a lock.

Until Python 3.12 `functools.cached_property` holds one lock for all objects of a class while it computes: what waits for a server that
does not answer would have the pages of all other captures in the process wait, too. Two threads that ask one object at the same time
may both compute here; the later result stays.
"""

from collections.abc import Callable
from typing import Generic, Self, TypeVar, overload

R = TypeVar("R")


class kept(Generic[R]):  # noqa: N801 - a decorator
    """A property whose first value stays with the object, which needs a `__dict__`.

    Example:
        >>> class Page:
        ...     @kept
        ...     def rows(self) -> list[int]:
        ...         return [1]
        >>> page = Page()
        >>> page.rows is page.rows
        True
    """

    def __init__(self, compute: Callable[..., R]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, found: None, owner: type) -> Self: ...
    @overload
    def __get__(self, found: object, owner: type) -> R: ...
    def __get__(self, found: object | None, owner: type) -> Self | R:
        if found is None:
            return self
        value: R = self._compute(found)
        vars(found)[self._name] = value  # from now on found before this descriptor
        return value
