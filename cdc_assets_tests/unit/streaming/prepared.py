"""A lake with which many tests begin is made once, and each of them gets a copy, which costs a tenth.

It is made by a fixture of the session (`conftest`): before any test has patched anything, so that it does not matter which comes first.
"""

import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.lake.known import remember_record
from cdc_assets.lake.location import Location
from cdc_assets.lake.system_topics import manifest_directory

T = TypeVar("T")


class Prepared(Generic[T]):
    """What a function makes beside a lake at a path."""

    def __init__(self, make: Callable[[Path], T]) -> None:
        self._make = make
        self._made: tuple[Path, T] | None = None

    def prepare(self, folder: Path) -> None:
        """Make it in a folder that stays."""
        self._made = folder, self._make(folder)

    def copied(self, path: Path) -> T | None:
        """A copy with its lake at another path; None if it was not made."""
        if self._made is None:
            return None
        folder, made = self._made
        shutil.copytree(folder, path, dirs_exist_ok=True)
        return deepcopy(made)


def moved(config: CaptureConfig, path: Path) -> CaptureConfig:
    """The same settings with the copy's lake, which is remembered as one that was seen."""
    config = replace(config, lake=replace(config.lake, path=str(path)))
    remember_record(Location.of(config.lake).uri(manifest_directory(config.events.topic_prefix)))
    return config
