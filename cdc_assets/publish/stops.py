"""Topics that are not published further, and why.

*A topic is reported as stopped until it has passed what stopped it*: also while it is tried again, by this process or by one that has just
started. It has passed once a whole pass found nothing more of it to publish.
"""

import logging
from collections.abc import Iterable, Mapping
from time import monotonic

from cdc_assets.publish.after import After, after_in
from cdc_assets.publish.feed import Topic
from cdc_assets.publish.offset import END_OF_WINDOW, Published

log = logging.getLogger(__name__)

_LONGEST, _ALL = 2_000, 60_000
"""Characters of a reason in a marker, and of all of them; the log has them whole. Each may take six bytes."""


class Stops:
    """Why topics of one publisher are stopped."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        """Why topics are not published further, by name."""
        self._tried: dict[str, str] = {}
        """The same of topics that are tried again."""
        self._tried_at = 0.0

    def begin(self, known: Mapping[str, str]) -> None:
        """Continue from a marker: all topics are tried again."""
        self.now.clear()
        self._tried = dict(known)
        self._tried_at = monotonic()

    def is_due(self, seconds: float) -> bool:
        """Whether topics are stopped that were tried so long ago."""
        return bool(self.now) and monotonic() - self._tried_at >= seconds

    def add(self, name: str, reason: str) -> None:
        """Stop a topic."""
        self.now[name] = reason
        log.error("Topic %s is not published further: %s", name, reason)

    def passed(self, topics: Iterable[str], published: Iterable[str]) -> None:
        """Note that a pass has ended.

        Args:
            topics: all that there are.
            published: those of which nothing is left.
        """
        published = set(published)
        left = set(topics) - published
        self._tried = {name: reason for name, reason in self._tried.items() if name in left}

    def reasons(self) -> dict[str, str]:
        """Why topics are stopped, as a marker says it: a marker that is larger than a topic takes would stop all of them."""
        found = {**self._tried, **self.now}
        longest = min(_LONGEST, _ALL // max(1, len(found)))
        return {name: text if len(text) <= longest else f"{text[: longest - 1]}…" for name, text in found.items()}


def dropped(topic: Topic, published: Published, after: After, *, several: bool) -> str:
    """Why a topic is stopped of which events were dropped that are not published; empty if there are none.

    Args:
        after: commit LSNs after which events are published.
        several: whether there are several databases, whose LSNs have no order.
    """
    window, at = published.of(topic.name, numbered=topic.numbered)
    unpublished = topic.holds.window >= (window + 1 if at == END_OF_WINDOW else window)
    if not (topic.numbered and unpublished and after_in(after, topic.database) < topic.holds.after):
        return ""
    first = topic.holds.window + 1 if several else topic.holds.after
    return (
        f"it holds every event after {topic.holds.after}, and is published up to window {window}: those between are gone. "
        "Next: restore a copy of the lake that has them; or publish what there is into other topics with "
        f"--replay {first}.. --prefix"
    )
