"""Reads the newest marker of what is published, through librdkafka (extra `kafka`).

Markers are in one partition of a compacted topic, so the newest is the last that is committed. It is searched for among the last
records first. The client waits for no group and commits no offsets.

*A publisher that continues from it* must have the newest of all. A replay that was killed in its commit leaves a transaction open in the
topic. Until the broker ends it, that hides what was committed after it began. So its end is waited for, but not by those who only want to
know.
"""

from contextlib import suppress
from typing import Any, Final

from cdc_assets.adapters.kafka.client import client_library, made
from cdc_assets.adapters.kafka.options import connection_options
from cdc_assets.adapters.kafka.rights import NOT_AUTHORIZED, permission_error
from cdc_assets.adapters.kafka.waits import STEP_S, Wait, repeated
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConnectionLostError

_SEARCH_BACK: Final = 1000
"""Offsets from the end among which the newest marker is searched for first."""
QUICK_S: Final = 5.0
"""Time limit for those who only want to know."""


def marker_topic(prefix: str) -> str:
    """Name of the topic of markers."""
    return f"{prefix}.__published"


def replay_topic(prefix: str) -> str:
    """Name of the topic of replays' markers, whose keys are the prefixes that they have written."""
    return f"{prefix}.__replayed"


class KafkaMarker:
    """The newest marker of a prefix.

    Args:
        settings: brokers and options of the client.
        prefix: topic prefix.
        limit_s: time limit of each request in seconds.
        replay: prefix that a replay writes, whose marker it is; empty for the publisher's.

    Raises:
        ConfigurationError: the extra `kafka` is not installed.
    """

    def __init__(self, settings: KafkaSettings, prefix: str, limit_s: float = QUICK_S, replay: str = "") -> None:
        self._settings, self._prefix, self._limit_s = settings, prefix, limit_s
        self._kafka = client_library("bootstrap.servers", settings.servers)
        self.topic = replay_topic(prefix) if replay else marker_topic(prefix)
        self.key = (replay or prefix).encode()

    def newest(self, *, final: bool = False) -> str | None:
        """The newest committed marker; None if nothing is published yet.

        Args:
            final: whether somebody continues from it: then the topic exists, so that a broker that does not know it yet is no answer, and the
                end of open transactions in it is waited for.

        Raises:
            ConnectionLostError: the broker is away; or such a transaction does not end in time.
            PreflightError: the user may not read the topic.
            ConfigurationError: the client does not know an option.
        """
        group = {
            "group.id": f"cdc-assets-{self._prefix}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        # the end is reported once nothing has arrived for so long
        end = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        options = {**connection_options(self._settings), **group, **end}
        consumer = made(self._kafka, self._kafka.Consumer, options, self._settings.producer)
        try:
            if self._is_missing(consumer) and not final:
                return None
            own = self._kafka.TopicPartition(self.topic, 0)
            low, high = repeated(self._kafka, lambda step_s: consumer.get_watermark_offsets(own, step_s), self._limit_s)
            for start in dict.fromkeys((max(low, high - _SEARCH_BACK), low)):
                found = self._last(consumer, start, final=final) if final or start < high else None
                if found is not None:
                    return found
            return None
        except self._kafka.KafkaException as error:
            if error.args[0].code() in NOT_AUTHORIZED:
                what = "read the topic of markers"
                raise permission_error(self._settings.servers, what, ["READ"], "topic", self.topic) from None
            raise ConnectionLostError(
                f"Kafka at {self._settings.servers} cannot be read: {error.args[0].str()}. "
                "Next: check bootstrap.servers and the producer options."
            ) from None
        finally:
            consumer.end()

    def _is_missing(self, consumer: Any) -> bool:
        found = repeated(self._kafka, lambda step_s: consumer.list_topics(self.topic, step_s), self._limit_s)
        error = found.topics[self.topic].error
        if error is not None and error.code() != self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise self._kafka.KafkaException(error)
        return error is not None

    def _last(self, consumer: Any, start: int, *, final: bool) -> str | None:
        """The value of the newest marker from an offset on."""
        own = self._kafka.TopicPartition(self.topic, 0, start)
        consumer.assign([own])
        found, wait, hint = None, Wait(self._limit_s), "see whether all its brokers run"
        with suppress(TimeoutError):
            while True:
                message = consumer.poll(STEP_S)
                if message is None:
                    wait.go_on()
                elif message.error() is None:
                    found = _value(message) if message.key() == self.key else found
                elif message.error().code() == self._kafka.KafkaError._PARTITION_EOF:
                    _, end = consumer.get_watermark_offsets(own, cached=True)
                    if not final or message.offset() >= end:
                        return found
                    hint = "wait for the end of the transaction that is open in it, which kafka-transactions shows"
                elif (
                    message.error().code() != self._kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
                ):  # no offset of the group is needed
                    raise self._kafka.KafkaException(message.error())
        raise ConnectionLostError(
            f"Topic {self.topic} at {self._settings.servers} cannot be read to its end. Next: {hint}."
        )


def _value(message: Any) -> str | None:
    """What a marker says; None of one that says that there is none, as somebody sends who removes a key from a compacted topic."""
    value = message.value()
    return None if value is None else str(value.decode())
