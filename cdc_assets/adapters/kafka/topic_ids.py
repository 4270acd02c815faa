"""Which topic a name means: a topic that is deleted and made again has another id, and other messages at the same offsets."""

import logging
from collections.abc import Sequence
from typing import Any, Final

from cdc_assets.adapters.kafka.client import made
from cdc_assets.adapters.kafka.options import of_connections
from cdc_assets.adapters.kafka.waits import outcome

log = logging.getLogger(__name__)

_NONE: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""What a broker gives that knows no ids (before Kafka 2.8)."""


class TopicIds:
    """Requests the ids of topics, over a connection of its own: a consumer of librdkafka does not report them.

    Args:
        kafka: the client library.
        servers: brokers.
        options: of the client.
        limit_s: time limit of a request in seconds.
    """

    def __init__(self, kafka: Any, servers: str, options: Sequence[tuple[str, str]], limit_s: float) -> None:
        self._kafka, self._limit_s = kafka, limit_s
        own = of_connections(servers, tuple(options), "consumer.override")
        self._admin = made(kafka, kafka.admin.AdminClient, own, options, "consumer.override")
        self._has_warned = False

    def end(self) -> None:
        """End the connection."""
        self._admin.end()

    def of(self, names: Sequence[str]) -> dict[str, str]:
        """The ids of topics; of those that are not there, and of brokers that know none, nothing.

        Raises:
            KafkaException: the broker does not answer.
        """
        if not names:
            return {}
        asked = self._admin.describe_topics(self._kafka.TopicCollection(list(names)), request_timeout=self._limit_s)
        found: dict[str, str] = {}
        for name, answer in asked.items():
            try:
                found[name] = str(outcome(answer).topic_id)
            except self._kafka.KafkaException as error:
                if error.args[0].code() < 0:  # of the client, and no answer
                    raise
        if _NONE in found.values() and not self._has_warned:
            self._has_warned = True
            log.warning("The broker gives no ids of topics: one that was recreated is noticed only if it is shorter.")
        return {name: id_ for name, id_ in found.items() if id_ != _NONE}
