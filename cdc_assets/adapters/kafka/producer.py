"""Writes records into Kafka in transactions, through librdkafka (extra `kafka`).

Partitions are chosen as by Java's producer: murmur2 of the serialised key, a random one for a record without a key
(`partitioner=murmur2_random`). The transactional id is of the capture's topic prefix, so of two producers the newer fences
the older; initialising it waits until the older one's open transaction has ended, so the newest committed marker is final.

*Sizes.* The broker refuses a batch that is larger than the topic allows, and the client then fails all of its records. So
a topic's limit is asked for, a record beyond it is refused before it is sent, and a topic with a limit below the client's batches
is flushed before a batch could exceed it.
"""

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from cdc_assets.adapters.kafka.client import client_library
from cdc_assets.adapters.kafka.marker import KafkaMarker, connection_options, made
from cdc_assets.config.settings import KafkaSettings, TopicRule
from cdc_assets.errors import ConnectionLostError, FencedError
from cdc_assets.publish.run import Run

log = logging.getLogger(__name__)

_ANSWER_S: Final = 30.0
"""Time limit of a request to a broker."""
_OUTCOME_S: Final = 120.0
"""Time limit of a commit, in which the client repeats what fails."""
_BATCH_BYTES: Final = 1_000_000
"""The client's own limit of a batch."""
_LIMIT_BYTES: Final = 1_048_588
"""Kafka's default limit of a batch."""
_OVERHEAD: Final = 120
"""Bytes of a batch and of a record besides keys, values and headers."""
_NEAR: Final = 4096
"""A record that has as many bytes less than a limit may be beyond it."""
_LINGER_MS: Final = "100"
"""Waits for full batches alone: a commit sends what there is at once."""
_MARKERS: Final = {"cleanup.policy": "compact", "segment.ms": "3600000"}


class KafkaBroker:
    """See `Broker` of the room `publish`.

    Args:
        settings: brokers, options of the client, and how topics are made.
        prefix: topic prefix.
        replay: prefix that a replay writes; empty for the publisher of everything.

    Raises:
        ConfigurationError: the extra `kafka` is not installed.
    """

    def __init__(self, settings: KafkaSettings, prefix: str, replay: str = "") -> None:
        self._settings, self._prefix = settings, prefix
        self._kafka = client_library("bootstrap.servers", "(given)")
        self._marker = KafkaMarker(settings, prefix, _ANSWER_S, replay)
        self._markers = self._marker.topic
        self._id = f"cdc-assets-{prefix}-replay-{replay}" if replay else f"cdc-assets-{prefix}"
        self._producer: Any = None
        self._limits: dict[str, int] = {}
        self._most_bytes = int(dict(settings.producer).get("message.max.bytes", _LIMIT_BYTES))
        self._unflushed: dict[str, int] = {}
        self._refused: dict[str, str] = {}

    def open(self) -> str | None:
        """See `Broker`."""
        self.close()
        self._producer = self._new_producer()
        with self._translated("written"):
            if trouble := self.prepare([self._markers]):
                raise ConnectionLostError(
                    f"Topic {self._markers} cannot be made: {trouble[self._markers]}. Next: check the rights of the user."
                )
            self._producer.init_transactions(_ANSWER_S)
        return self.newest()

    def newest(self) -> str | None:
        """See `Broker`."""
        return self._marker.newest(exists=True)

    def prepare(self, topics: Sequence[str]) -> Mapping[str, str]:
        """See `Broker`."""
        admin = self._made(self._kafka.admin.AdminClient, connection_options(self._settings))
        with self._translated("asked"):
            known = admin.list_topics(timeout=_ANSWER_S).topics
            missing = [name for name in topics if name not in known]
            troubles = self._create(admin, missing)
            self._ask_limits(admin, [name for name in topics if name not in troubles])
        return troubles

    def begin(self) -> None:
        """See `Broker`."""
        self._refused.clear()
        with self._translated("written"):
            self._producer.begin_transaction()

    def send(self, topic: str, records: Run) -> tuple[int, str]:
        """See `Broker`."""
        limit = self._limits.get(topic, _LIMIT_BYTES)
        taken, reason = len(records), ""
        with self._translated("written"):
            if limit >= _BATCH_BYTES and records.greatest() + _OVERHEAD <= min(limit, self._most_bytes - _NEAR):
                self._send_small(topic, records)
            else:
                taken, reason = self._send_large(topic, records, limit)
            self._producer.poll(0)
        return taken, reason

    def _send_small(self, topic: str, records: Run) -> None:
        """Hand over records that no limit refuses. The loop is that of every event: nothing in it may be dear."""
        produce = self._producer.produce
        for key, value, headers, partition, timestamp in records.columns():
            try:
                produce(topic, value, key, partition, None, None, timestamp, headers)
            except BufferError:
                self._produce_later(topic, value, key, partition, None, None, timestamp, headers)

    def _send_large(self, topic: str, records: Run, limit: int) -> tuple[int, str]:
        """Hand over records up to one that is refused."""
        for number, size in enumerate((records.sizes() + _OVERHEAD).tolist()):
            if size > limit:
                return number, f"it has {size:,} bytes, and the topic takes {limit:,} (max.message.bytes)"
            if limit < _BATCH_BYTES:
                self._keep_small(topic, size, limit)
            try:
                self._send_small(topic, records.slice(number, number + 1))
            except self._kafka.KafkaException as error:
                if error.args[0].code() != self._kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                return number, f"it has {size:,} bytes, more than producer.max.request.size"
        return len(records), ""

    def commit(self, marker: str) -> Mapping[str, str]:
        """See `Broker`."""
        with self._translated("written"):
            try:
                self._producer.produce(self._markers, marker.encode(), self._marker.key, 0)
                self._producer.commit_transaction(_OUTCOME_S)
            except self._kafka.KafkaException:
                if not self._refused:
                    raise
                return dict(self._refused)
        self._unflushed.clear()
        return {}

    def abort(self) -> None:
        """See `Broker`."""
        with self._translated("written"):
            self._producer.abort_transaction(_ANSWER_S)
        self._unflushed.clear()

    def close(self) -> None:
        """See `Broker`."""
        if self._producer is not None:
            with suppress(self._kafka.KafkaException, ConnectionLostError, FencedError):
                self._producer.purge()
                self._producer.abort_transaction(2.0)
        self._producer = None

    def _new_producer(self) -> Any:
        base = {"linger.ms": _LINGER_MS, "message.max.bytes": str(_LIMIT_BYTES), "log_level": 3}
        fixed = {
            "bootstrap.servers": self._settings.servers,
            "transactional.id": self._id,
            "on_delivery": self._delivered,
            "delivery.report.only.error": True,
        }
        options = {"partitioner": "murmur2_random", **base, **dict(self._settings.producer), **fixed}
        return self._made(self._kafka.Producer, options)

    def _made(self, kind: Any, options: dict[str, Any]) -> Any:
        return made(self._kafka, kind, options, self._settings)

    def _produce_later(self, *record: object) -> None:
        """Hand over a record once the client has room."""
        until = time.monotonic() + _OUTCOME_S
        while time.monotonic() < until:
            self._producer.poll(0.1)
            with suppress(BufferError):
                self._producer.produce(*record)
                return
        raise ConnectionLostError(f"Kafka at {self._settings.servers} takes no more events.")

    def _keep_small(self, topic: str, size: int, limit: int) -> None:
        if self._unflushed.get(topic, 0) + size > limit:
            with self._translated("written"):
                self._producer.flush(_OUTCOME_S)
            self._unflushed.clear()
        self._unflushed[topic] = self._unflushed.get(topic, 0) + size

    def _delivered(self, error: Any, message: Any) -> None:
        codes = self._kafka.KafkaError
        final = (
            codes.MSG_SIZE_TOO_LARGE,
            codes.RECORD_LIST_TOO_LARGE,
            codes.INVALID_RECORD,
            codes.TOPIC_AUTHORIZATION_FAILED,
        )
        if error is not None and error.code() in final:
            self._refused.setdefault(message.topic(), error.str())

    def _create(self, admin: Any, names: Sequence[str]) -> dict[str, str]:
        troubles: dict[str, str] = {}
        if not names:
            return troubles
        if not self._settings.creates and self._markers not in names:
            return dict.fromkeys(names, "there is no such topic, and topic.creation.enable is false")
        outcomes = admin.create_topics([self._new_topic(name) for name in names], request_timeout=_ANSWER_S)
        for name, outcome in outcomes.items():
            try:
                outcome.result()
            except self._kafka.KafkaException as error:
                code = error.args[0].code()
                if code == self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if error.args[0].retriable() or code in (-185, -195, -192):  # time-outs and lost connections
                    raise
                troubles[name] = f"it cannot be made: {error.args[0].str()}"
        return troubles

    def _new_topic(self, name: str) -> Any:
        rule = rule_for(name, self._settings.rules)
        if name == self._markers:
            return self._kafka.admin.NewTopic(name, 1, rule.replication, config=_MARKERS)
        return self._kafka.admin.NewTopic(name, rule.partitions, rule.replication, config=dict(rule.options))

    def _ask_limits(self, admin: Any, names: Sequence[str]) -> None:
        """Sizes that topics take; those that may not be asked for have Kafka's default."""
        kinds = self._kafka.admin
        asked = [kinds.ConfigResource(kinds.ConfigResource.Type.TOPIC, name) for name in names]
        for resource, outcome in (admin.describe_configs(asked, request_timeout=_ANSWER_S) if asked else {}).items():
            with suppress(self._kafka.KafkaException, KeyError, ValueError):
                self._limits[resource.name] = int(outcome.result()["max.message.bytes"].value)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            found = error.args[0]
            codes = self._kafka.KafkaError
            fenced = (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH)
            if found.code() in fenced or found.code() == codes._FATAL or found.fatal():  # which, it does not say
                raise FencedError(
                    f"Another producer has taken over the topics of {self._prefix} at {self._settings.servers}. "
                    "Next: nothing, if a newer one is active; it continues from the same marker."
                ) from None
            raise ConnectionLostError(
                f"Kafka at {self._settings.servers} cannot be {what}: {found.str()}. "
                "Next: check bootstrap.servers and the producer options."
            ) from None


def rule_for(topic: str, rules: Sequence[TopicRule]) -> TopicRule:
    """How a topic is made: the first rule whose expressions it matches; the last one fits all."""
    for rule in rules[:-1]:
        included = any(re.fullmatch(text, topic) for text in rule.include)
        if included and not any(re.fullmatch(text, topic) for text in rule.exclude):
            return rule
    return rules[-1]
