"""Errors of the client that writes, as the project's own."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from aiokafka import errors as kafka_errors

from cdc_assets.adapters.kafka.rights import refused, unwritable
from cdc_assets.adapters.kafka.transactions import Failure, InvalidRecordError, NewerProducerError
from cdc_assets.errors import ConnectionLostError, FencedError

REFUSALS: Final = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.TopicAuthorizationFailedError,
    InvalidRecordError,
)
"""Of a topic, and not to be repeated."""
CLIENT: Final = (kafka_errors.KafkaError, TimeoutError, OSError, AssertionError)
"""What the client raises."""
_FENCES: Final = (kafka_errors.ProducerFenced, kafka_errors.InvalidProducerEpoch, NewerProducerError)


def refusals(failures: Iterable[Failure]) -> dict[str, str]:
    """Topics of which a record is refused, with the reason."""
    return {one.topic: reason(one.topic, one.error) for one in failures if isinstance(one.error, REFUSALS)}


def reason(topic: str, error: BaseException) -> str:
    """Why a topic is not published further."""
    return unwritable(topic) if isinstance(error, kafka_errors.TopicAuthorizationFailedError) else str(error)


@dataclass(frozen=True, slots=True)
class Translation:
    """What errors mean for one producer.

    Args:
        servers: brokers.
        prefix: topic prefix.
        transactional_id: of the producer.
        marker: topic of markers.
    """

    servers: str
    prefix: str
    transactional_id: str
    marker: str

    def error(self, errors: Iterable[BaseException]) -> Exception:
        """What to raise for errors that have come together; that which explains the others."""
        found = [one for error in errors for one in _with_causes(error)]
        if any(isinstance(one, _FENCES) for one in found):
            return self.fenced()
        if any(isinstance(one, kafka_errors.TransactionalIdAuthorizationFailed) for one in found):
            what = "use the transactional id"
            return refused(self.servers, what, ["WRITE", "DESCRIBE"], "transactional-id", self.transactional_id)
        first = found[0]
        text = str(first.__cause__ or first) or "it does not answer in time"
        return ConnectionLostError(
            f"Kafka at {self.servers} cannot be written: {text}. Next: check bootstrap.servers and the producer options."
        )

    def marker_refused(self, why: str) -> Exception:
        """No marker can be written, so nothing can be published.

        Args:
            why: the reason.
        """
        if why == unwritable(self.marker):
            return refused(self.servers, "write the topic of markers", ["WRITE", "READ"], "topic", self.marker)
        return ConnectionLostError(
            f"Kafka at {self.servers} refuses a marker in {self.marker}: {why}. Next: check the topic's options."
        )

    def fenced(self) -> FencedError:
        """Another producer has taken over."""
        return FencedError(
            f"Another producer has taken over the topics of {self.prefix} at {self.servers}. "
            "Next: nothing, if a newer one is active; it continues from the same marker."
        )


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__
