"""Moves tables of mirrors out of the way that nothing can open any more, as after a commit inside their log was lost.

Such a table cannot be rebuilt in its place, since whatever replaces its content must read its log first. A mirror is made of
its topic, so nothing is lost by it; the folder is kept for people, beside what a reset of the capture has moved. Only what the Delta library
refuses counts: who may not read a table, or lacks memory, says nothing of it.

*Crash*: a table that was moved is gone, for which the mirror is rebuilt (`audit`). Of two processes that find one the second finds none to
move, or is fenced by the row with which the first plans the rebuild. If it sleeps until that is carried out, it moves a sound table: it is
gone, too.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from deltalake.exceptions import DeltaError

from cdc_assets.errors import LakeError
from cdc_assets.lake.folder import MOVED_TO
from cdc_assets.lake.location import plain
from cdc_assets.mirror.audit import directories
from cdc_assets.mirror.delta import MirrorTables

log = logging.getLogger(__name__)


def move_unopened(tables: MirrorTables, topic: str, now: datetime, fence: Callable[[], None]) -> None:
    """Move those tables of a mirror away that nothing can open, so that it can be rebuilt.

    Args:
        fence: raises FencedError if another writer has taken over.

    Raises:
        FencedError: another writer has taken over.
        LakeError: a table cannot be opened for another reason, or cannot be moved, as in an object store.
    """
    for directory in directories(topic):
        try:
            tables.reached(directory)
        except LakeError as error:
            if not isinstance(error.__cause__, DeltaError):
                raise
            fence()
            _move(tables, directory, now, error)


def _move(tables: MirrorTables, directory: str, now: datetime, why: LakeError) -> None:
    location, reason = tables.location, plain(why.__cause__ or why)
    if not location.on_disk:
        raise LakeError(
            f"{directory} cannot be opened any more ({reason}), and folders of an object store cannot be moved. Next: move or remove "
            f"{location.uri(directory)}; the next mirror run rebuilds the mirror."
        ) from why
    target = Path(location.path(f"{MOVED_TO}/mirrors-{now:%Y%m%dT%H%M%S}")) / directory
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        Path(location.path(directory)).rename(target)
    except FileNotFoundError:  # another process has moved it
        pass
    except OSError as error:
        raise LakeError(
            f"{directory} cannot be opened any more ({reason}), nor moved to {target}: {error}. Next: move {location.uri(directory)} away."
        ) from error
    else:
        log.warning("%s cannot be opened any more (%s), and was moved to %s.", directory, reason, target)
    tables.tables.forget(directory)
