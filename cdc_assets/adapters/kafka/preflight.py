"""Queries brokers whether topics could be published; changes nothing.

The right on the transactional id is not checked: only a producer could, and would fence the publisher that is at work.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cdc_assets.adapters.kafka.broker import check_options
from cdc_assets.adapters.kafka.client import client_library, made
from cdc_assets.adapters.kafka.marker import marker_topic
from cdc_assets.adapters.kafka.marker_topic import unfit
from cdc_assets.adapters.kafka.options import connection_options
from cdc_assets.adapters.kafka.rights import grant_hint
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.core.check_result import CheckResult
from cdc_assets.errors import CdcError, ConfigurationError

_LIMIT_S: Final = 5.0
"""Time limit of each request in seconds."""
_WRITABLE: Final = "can be written"


def inspect_kafka(settings: KafkaSettings, prefix: str) -> Iterator[CheckResult]:
    """What a publisher needs.

    Args:
        settings: with `servers`.
        prefix: topic prefix.
    """
    try:
        if settings.problem:
            name, value, supported = settings.problem
            raise ConfigurationError(name, value, f"{supported}, to publish to Kafka", "change it, or leave it out")
        check_options(settings)
        brokers = _Brokers(settings)
        try:
            yield from brokers.inspect(prefix)
        finally:
            brokers.end()
    except CdcError as error:
        yield CheckResult.failed("Kafka", settings.servers, error, "options that its clients take")


class _Brokers:
    """The brokers of a capture.

    Args:
        settings: with `servers`.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self._reasons = settings, list[str]()
        self._kafka = client_library("bootstrap.servers", settings.servers)
        options = connection_options(settings) | {"error_cb": lambda error: self._reasons.append(error.str())}
        self._admin = made(self._kafka, self._kafka.admin.AdminClient, options, settings.producer)

    def end(self) -> None:
        """End the connections."""
        self._admin.end()

    def inspect(self, prefix: str) -> Iterator[CheckResult]:
        """See `inspect_kafka`."""
        name = self._settings.servers
        try:
            found = self._admin.list_topics(timeout=_LIMIT_S)
            topics = self._rights([topic for topic in found.topics if topic.startswith(f"{prefix}.")])
            wrong = unfit(self._kafka, self._admin, marker_topic(prefix), _LIMIT_S)
        except self._kafka.KafkaException as error:
            self._admin.poll(0)
            reason = "; ".join([error.args[0].str(), *self._reasons[:1]])
            advice = "check bootstrap.servers, and user, password and certificates among the producer options"
            yield CheckResult("Kafka", name, False, f"not reached: {reason}", "reached", advice)
            return
        count = len(found.brokers)
        yield CheckResult("Kafka", name, True, f"reached, {count} broker{'' if count == 1 else 's'}", "reached")
        yield from self._replicas(count)
        if wrong:
            fact, _, remedy = wrong.partition(". Next: ")
            yield CheckResult("Kafka topic", marker_topic(prefix), False, fact, "one partition, compacted", remedy)
        for topic, allowed in topics:
            needed = ["WRITE", "READ"] if topic == marker_topic(prefix) else ["WRITE"]
            if missing := [one for one in needed if one not in allowed]:
                remedy = f"give {grant_hint(missing, 'topic', topic)}"
                yield CheckResult("Kafka topic", topic, False, f"not allowed: {', '.join(missing)}", _WRITABLE, remedy)
            else:
                yield CheckResult("Kafka topic", topic, True, _WRITABLE, _WRITABLE)

    def _replicas(self, brokers: int) -> Iterator[CheckResult]:
        wanted = max(rule.replication for rule in self._settings.rules)
        if self._settings.creates and wanted > brokers:
            expected, remedy = f"at most {brokers}, the number of brokers", "lower it, or add brokers"
            name = "topic.creation.default.replication.factor"
            yield CheckResult("replication factor", name, False, str(wanted), expected, remedy)

    def _rights(self, topics: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
        """Operations that the user is allowed on each topic."""
        if not topics:
            return []
        asked = self._admin.describe_topics(
            self._kafka.TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=_LIMIT_S
        )
        return [(name, [one.name for one in self._allowed(future)]) for name, future in asked.items()]

    def _allowed(self, future: Any) -> Sequence[Any]:
        found: Sequence[Any] | None = future.result().authorized_operations
        return found or ()
