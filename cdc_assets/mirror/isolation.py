"""What befalls one mirror stops no other.

All mirrors that have something new share jobs and rows of the ledger. So an error of one would end all of them, and the run of the
capture with them. An error that is nobody's own passes: another writer has taken over, Spark cannot run tasks, or a store or an
executor is away, which the next attempt finds again. Any other one, also one that this project does not know, is the trouble of its
mirror. If a job of several mirrors fails by it, it is repeated with each half of them, until the mirror is found whose own it is.

*Why that is right.* Jobs commit nothing: they write files that nobody names yet, so repeating them changes nothing.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from cdc_assets.errors import CdcError, EngineError, FencedError, MirrorError, RetryableError, describe_error
from cdc_assets.mirror.jobs import Jobs
from cdc_assets.mirror.tasks import FoldResult
from cdc_assets.mirror.work import Work

log = logging.getLogger(__name__)

OF_ALL = (FencedError, EngineError, RetryableError)
"""Errors that are no mirror's own."""

T = TypeVar("T")


def attempted(topic: str, troubles: dict[str, CdcError], act: Callable[[], T]) -> T | None:
    """What a function of one mirror returns; None if it raises, which is the mirror's trouble then.

    Raises:
        FencedError: another writer has taken over.
    """
    try:
        return act()
    except FencedError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is
        troubles[topic] = trouble_of(topic, error)
        return None


def trouble_of(topic: str, error: Exception) -> CdcError:
    """The reason for which a mirror cannot follow."""
    if isinstance(error, CdcError):
        log.error("The mirror of %s cannot follow: %s", topic, error)
        return error
    log.error("The mirror of %s cannot follow", topic, exc_info=error)
    return MirrorError(
        f"The mirror of {topic} met an unexpected error: {describe_error(error)}. Next: rebuild it (cdc-assets "
        f"mirror --rebuild), or leave its table out by mirror.table.include.list, and report what the log says."
    )


def folded(jobs: Jobs, works: Sequence[Work], troubles: dict[str, CdcError]) -> list[tuple[Work, list[FoldResult]]]:
    """What steps have made of the events that they take; without those that fail by an error of their own.

    Raises:
        CdcError: one that is nobody's own.
    """
    try:
        return jobs.fold(works)
    except OF_ALL:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is
        if len(works) == 1:
            troubles[works[0].table.topic] = trouble_of(works[0].table.topic, error)
            return []
    half = len(works) // 2
    return [*folded(jobs, works[:half], troubles), *folded(jobs, works[half:], troubles)]
