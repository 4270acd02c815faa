"""Hides packages that an installation would not have brought, in an environment that shares those of the tests."""

import importlib.metadata as metadata
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HIDE = """
import sys
from importlib.machinery import PathFinder

class Required(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Required
"""


def hide_all_but(wanted: Sequence[str], site: Path) -> None:
    """Have an interpreter import what pip would have installed, and not what only stands beside it.

    Args:
        wanted: requirements, as pip takes them.
        site: its folder of packages.
    """
    brought = set(_brought(wanted))
    modules = metadata.packages_distributions()
    hidden = {name for name, owners in modules.items() if not brought & {canonicalize_name(owner) for owner in owners}}
    (site / "required.py").write_text(HIDE.format(hidden=hidden))
    (site / "required.pth").write_text("import required\n")


def _brought(wanted: Collection[str]) -> Iterator[str]:
    """Names of what requirements bring, and of what that brings."""
    waiting, seen = [Requirement(one) for one in wanted], set[tuple[str, ...]]()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if (name, *sorted(one.extras)) in seen:
            continue
        seen.add((name, *sorted(one.extras)))
        yield name
        try:
            needed = [Requirement(text) for text in metadata.requires(name) or ()]
        except metadata.PackageNotFoundError:  # of another platform
            continue
        extras = [{"extra": extra} for extra in ("", *one.extras)]
        waiting += [need for need in needed if not need.marker or any(map(need.marker.evaluate, extras))]
