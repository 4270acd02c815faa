"""Makes the topics that are missing, asks for the limits of all, and which of them the user may not write, through librdkafka (extra `kafka`).

A transform may name topics by values of a column, so a name may be any text. One that Kafka does not have is refused here: the client fails for
some of them, and a request with a very long one fails for all topics in it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from cdc_assets.adapters.kafka.client import Client, client_library, made
from cdc_assets.adapters.kafka.marker_topic import unfit
from cdc_assets.adapters.kafka.options import connection_options
from cdc_assets.adapters.kafka.rights import NOT_AUTHORIZED, no_create_permission, no_write_permission, permission_error
from cdc_assets.adapters.kafka.waits import outcome, repeated
from cdc_assets.config.java_patterns import matches_name
from cdc_assets.config.settings import KafkaSettings, TopicRule
from cdc_assets.errors import ConnectionLostError, PreflightError

_MARKERS: Final = {"cleanup.policy": "compact", "segment.ms": "3600000"}
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
"""Names of topics that Kafka has."""
_PASSING: Final = (-185, -195, -192)
"""Codes of librdkafka for time-outs and lost connections."""


class KafkaTopics:
    """The topics of a broker.

    Args:
        settings: brokers, options of the client, and how topics are made.
        markers: topic of markers.
        limit_s: time limit of each request in seconds.

    Raises:
        ConfigurationError: the extra `kafka` is not installed.
    """

    def __init__(self, settings: KafkaSettings, markers: str, limit_s: float) -> None:
        self._settings, self._markers, self._limit_s = settings, markers, limit_s
        self._kafka = client_library("bootstrap.servers", settings.servers)
        self.limits: dict[str, int] = {}
        """Bytes of a batch that topics take, as far as they could be requested."""
        self.in_sync: dict[str, int] = {}
        """How many of their replicas are to be in sync, of topics that were prepared; 1 where that could not be requested."""

    def prepare(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Make the topics that are missing, and request the limits of all.

        Returns:
            Topics that cannot be written, with the reason.

        Raises:
            ConnectionLostError: the broker is away.
            PreflightError: the user may not create the topic of markers, or it cannot hold them.
            ConfigurationError: the client does not know an option.
        """
        troubles = {name: _invalid_name(name) for name in topics if not _NAME.fullmatch(name)}
        with self._admin() as admin, self._translated():
            known = repeated(self._kafka, lambda step_s: admin.list_topics(timeout=step_s), self._limit_s).topics
            troubles |= self._create(admin, [name for name in topics if name not in known and name not in troubles])
            self.in_sync |= {name: self.in_sync.get(name, 1) for name in topics if name not in troubles}
            self._ask_limits(admin, [name for name in topics if name not in troubles])
            if self._markers in topics and (reason := unfit(self._kafka, admin, self._markers, self._limit_s)):
                raise PreflightError(f"{reason}.")
        return troubles

    def unwritable_topics(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Those among topics that the user may not write, with the reason.

        Raises:
            ConnectionLostError: the broker is away.
        """
        names, found = self._kafka.TopicCollection(list(topics)), dict[str, str]()
        with self._admin() as admin, self._translated():
            asked = admin.describe_topics(names, include_authorized_operations=True, request_timeout=self._limit_s)
            for name, future in asked.items():
                try:
                    allowed = outcome(future).authorized_operations
                except self._kafka.KafkaException as error:
                    if error.args[0].code() not in (*NOT_AUTHORIZED, self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART):
                        raise
                    allowed = ()  # it may not even see it
                if allowed is not None and "WRITE" not in [one.name for one in allowed]:
                    found[name] = no_write_permission(name)
        return found

    def _admin(self) -> Client:
        return made(
            self._kafka, self._kafka.admin.AdminClient, connection_options(self._settings), self._settings.producer
        )

    def _create(self, admin: Any, names: Sequence[str]) -> dict[str, str]:
        troubles: dict[str, str] = {}
        if not names:
            return troubles
        if not self._settings.creates and self._markers not in names:
            return dict.fromkeys(names, "there is no such topic, and topic.creation.enable is false")
        outcomes = admin.create_topics([self._new_topic(name) for name in names], request_timeout=self._limit_s)
        for name, future in outcomes.items():
            try:
                outcome(future)
            except self._kafka.KafkaException as error:
                code = error.args[0].code()
                if code == self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if error.args[0].retriable() or code in _PASSING:
                    raise
                if code not in NOT_AUTHORIZED:
                    troubles[name] = f"it cannot be created: {error.args[0].str()}"
                elif name != self._markers:
                    troubles[name] = no_create_permission(name)
                else:
                    what = "create the topic of markers"
                    raise permission_error(
                        self._settings.servers, what, ["CREATE", "WRITE", "READ"], "topic", name
                    ) from None
        return troubles

    def _new_topic(self, name: str) -> Any:
        rule = rule_for(name, self._settings.rules)
        if name == self._markers:
            return self._kafka.admin.NewTopic(name, 1, rule.replication, config=_MARKERS)
        return self._kafka.admin.NewTopic(name, rule.partitions, rule.replication, config=dict(rule.options))

    def _ask_limits(self, admin: Any, names: Sequence[str]) -> None:
        """Sizes that topics take; those that may not be requested have Kafka's default."""
        kinds = self._kafka.admin
        asked = [kinds.ConfigResource(kinds.ConfigResource.Type.TOPIC, name) for name in names]
        answers = admin.describe_configs(asked, request_timeout=self._limit_s) if asked else {}
        for resource, future in answers.items():
            try:
                found = outcome(future)
            except self._kafka.KafkaException as error:
                if error.args[0].code() not in (*NOT_AUTHORIZED, self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART):
                    raise
            else:
                with suppress(KeyError, ValueError):
                    self.limits[resource.name] = int(found["max.message.bytes"].value)
                    self.in_sync[resource.name] = int(found["min.insync.replicas"].value)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            raise ConnectionLostError(
                f"Kafka at {self._settings.servers} cannot be queried: {error.args[0].str()}. "
                "Next: check bootstrap.servers and the producer options."
            ) from None


def _invalid_name(name: str) -> str:
    return (
        f"it is for the topic {name[:100]!r}, whose name Kafka does not have (1 to 249 letters, digits, dots, - and _): "
        "it needs another value in the column, or another transform"
    )


def rule_for(topic: str, rules: Sequence[TopicRule]) -> TopicRule:
    """How a topic is made: the first rule whose expressions it matches; the last one fits all.

    Raises:
        ConfigurationError: an expression takes too long.
    """

    def is_in(patterns: Sequence[str]) -> bool:
        return any(matches_name("topic.creation.groups", text, topic) for text in patterns)

    return next((rule for rule in rules[:-1] if is_in(rule.include) and not is_in(rule.exclude)), rules[-1])
