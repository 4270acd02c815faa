"""Puts the publication of topics together with a Kafka broker."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Final

from cdc_assets.adapters.kafka.broker import kafka_broker
from cdc_assets.adapters.kafka.marker import QUICK_S, KafkaMarker
from cdc_assets.adapters.kafka.preflight import inspect_kafka
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.check_result import CheckResult
from cdc_assets.errors import ConfigurationError, ConnectionLostError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish.after import After
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.follow import publish
from cdc_assets.publish.preflight import inspect_registries
from cdc_assets.publish.publisher import Commit, Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.span import Replay
from cdc_assets.publish.start import Beginning, WithoutMarker
from cdc_assets.publish.view import AskMarker

_TICK_S: Final = 2.0
"""Time limit of an answer to a tick."""
_UNREACHABLE_S: Final = 5.0
"""Seconds after which a tick queries a broker again that has not answered."""


def inspect_publishing(config: CaptureConfig) -> Iterator[CheckResult]:
    """Whether topics could be published to Kafka; nothing if none are to be."""
    if config.kafka.servers:
        yield from inspect_kafka(config.kafka, config.events.topic_prefix)
        yield from inspect_registries(config.kafka)


def forget_publisher(config: CaptureConfig) -> None:
    """Let retention of topics wait no longer for what is not published.

    Raises:
        LakeError: the lake cannot be written.
    """
    Feed(config, TopicTables.of(config)).recorded().forget()


def publish_topics(
    config: CaptureConfig,
    on_commit: Callable[[Commit], None],
    *,
    follow: bool,
    after: After | None = None,
    replay: Replay | None = None,
    without_marker: WithoutMarker = "",
    ends: Callable[[], bool] = lambda: False,
) -> Mapping[str, str]:
    """Write the topics of the lake to Kafka until nothing is new, or without end.

    Args:
        on_commit: function called after each transaction.
        follow: whether to wait for more.
        after: commit LSNs after which events are published, by database, if none were published yet; None for all.
        replay: the range that is published again elsewhere, in place of what is new.
        without_marker: what to do if the topic of markers is gone.
        ends: whether nothing more is to be waited for from now on, neither for events nor for the broker.

    Returns:
        Topics that are stopped, with the reason.

    Raises:
        ConfigurationError: no broker is given, or records are wanted in a form that is not supported.
        PreflightError: the topic of markers is gone, or is none; or a right is missing.
        FencedError: another publisher has taken over.
        IncompleteReadError: no topic is stopped, and the lake is not complete up to the end of the range.
        CdcError: the lake cannot be read, or the broker was away for too long.
    """
    settings = config.kafka
    if not settings.servers:
        raise ConfigurationError("bootstrap.servers", None, "host:port of a broker", "add it to the configuration")
    if settings.problem:
        name, value, supported = settings.problem
        raise ConfigurationError(name, value, f"{supported}, to publish to Kafka", "change it, or leave it out")
    own, rename = config.events.topic_prefix, None
    if replay is not None:
        _check_free(config, replay)
        rename = partial(replay.topic, own)
    broker = kafka_broker(settings, own, replay.prefix if replay else "")
    feed = Feed(config, TopicTables.of(config))
    renderer = Renderer(settings, rename)
    beginning = Beginning(after or {}, replay.span if replay else None, without_marker)
    publisher = Publisher(feed, broker, renderer, settings.transaction_rows, on_commit, beginning)
    publish(
        publisher,
        feed,
        follow=follow,
        pause_s=config.streaming.retry_wait_s,
        max_retries=config.streaming.max_retries,
        close=broker.close,
        ends=ends,
    )
    if not publisher.stopped:
        publisher.require_whole()
    return publisher.stopped


def _check_free(config: CaptureConfig, replay: Replay) -> None:
    """Refuse to replay into topics that another capture publishes."""
    if KafkaMarker(config.kafka, replay.prefix).newest() is not None:
        expected = "a prefix under which no capture publishes"
        raise ConfigurationError("--prefix", replay.prefix, expected, "choose another one")


def ask_marker(config: CaptureConfig, limit_s: float = QUICK_S) -> AskMarker | None:
    """What requests the newest marker of the topics in Kafka; None if nothing is written to Kafka.

    Args:
        limit_s: seconds to wait for each answer.
    """
    if not config.kafka.servers:
        return None
    return lambda: KafkaMarker(config.kafka, config.events.topic_prefix, limit_s).newest()


class TickMarker:
    """Requests the newest marker within a tick: briefly, and not again if a broker has just not answered.

    Several parts of a tick want to know, and none of them may hold it up. Nothing but a failure is remembered, until a question is
    answered.
    """

    def __init__(self) -> None:
        self._away: dict[tuple[str, str], tuple[float, str]] = {}

    def ask(self, config: CaptureConfig) -> AskMarker | None:
        """See `ask_marker`."""
        asked, place = ask_marker(config, _TICK_S), _place(config)

        def remembered() -> str | None:
            until, reason = self._away.get(place, (0.0, ""))
            if monotonic() < until:
                raise ConnectionLostError(reason)
            try:
                found = asked() if asked else None
            except ConnectionLostError as error:
                self._away[place] = monotonic() + _UNREACHABLE_S, str(error)
                raise
            self._away.pop(place, None)
            return found

        return remembered if asked else None

    def is_away(self, config: CaptureConfig) -> bool:
        """Whether the broker did not answer the last question, if there was one; sends none."""
        return _place(config) in self._away


def _place(config: CaptureConfig) -> tuple[str, str]:
    return config.kafka.servers, config.events.topic_prefix


TICK_MARKER: Final = TickMarker()
"""For the ticks of this process."""
