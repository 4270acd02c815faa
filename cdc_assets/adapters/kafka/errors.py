"""Errors of the client that writes, as the project's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_assets.adapters.kafka.rights import no_write_permission, permission_error
from cdc_assets.errors import ConnectionLostError, FencedError, PreflightError


@dataclass(frozen=True, slots=True)
class Translation:
    """What errors mean for one producer.

    Args:
        kafka: the client library.
        servers: brokers.
        prefix: topic prefix.
        transactional_id: of the producer.
        marker: topic of markers.
    """

    kafka: Any
    servers: str
    prefix: str
    transactional_id: str
    marker: str

    def refusals(self, failed: Mapping[tuple[str, int], Any]) -> dict[str, str]:
        """Topics of which a record is refused for good, with the reason.

        Args:
            failed: errors of records by topic and code.
        """
        codes = self.kafka.KafkaError
        final = (
            codes.MSG_SIZE_TOO_LARGE,
            codes.RECORD_LIST_TOO_LARGE,
            codes.INVALID_RECORD,
            codes.INVALID_TIMESTAMP,
            codes.TOPIC_AUTHORIZATION_FAILED,
        )
        return {
            topic: no_write_permission(topic) if code == codes.TOPIC_AUTHORIZATION_FAILED else error.str()
            for (topic, code), error in failed.items()
            if code in final
        }

    def error(self, errors: Sequence[Any], connection: str = "") -> Exception:
        """What to raise for errors that have come together.

        Args:
            errors: of the client; the first is that of the call, the others are of records.
            connection: what the client said of its connections.
        """
        codes, found = self.kafka.KafkaError, {error.code() for error in errors}
        if codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED in found:
            what = "use the transactional id"
            return permission_error(
                self.servers, what, ["WRITE", "DESCRIBE"], "transactional-id", self.transactional_id
            )
        if codes.INVALID_TRANSACTION_TIMEOUT in found:
            return PreflightError(
                f"Kafka at {self.servers} does not allow transactions as long as transaction.timeout.ms: {errors[0].str()}. "
                "Next: lower producer.transaction.timeout.ms, or raise the broker's transaction.max.timeout.ms."
            )
        if codes.CLUSTER_AUTHORIZATION_FAILED in found:
            return PreflightError(
                f"Kafka at {self.servers} does not allow this user to write idempotently. Next: give IDEMPOTENT_WRITE on the cluster "
                "(kafka-acls --add --allow-principal User:<user> --operation IdempotentWrite --cluster), and start again."
            )
        fenced = {codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH, codes._FATAL}
        if fenced & found or errors[0].fatal():  # which of them, the marker tells
            return self.fenced(errors[0].str())
        return self.lost("; ".join(dict.fromkeys(text for text in (errors[0].str(), connection) if text)))

    def lost(self, reason: str) -> ConnectionLostError:
        """The broker is away, or does not answer."""
        return ConnectionLostError(
            f"Kafka at {self.servers} cannot be written: {reason}. Next: check bootstrap.servers and the producer options."
        )

    def marker_refused(self, why: str) -> Exception:
        """No marker can be written, so nothing can be published.

        Args:
            why: the reason.
        """
        if why == no_write_permission(self.marker):
            return permission_error(self.servers, "write the topic of markers", ["WRITE", "READ"], "topic", self.marker)
        return ConnectionLostError(
            f"Kafka at {self.servers} refuses a marker in {self.marker}: {why}. Next: check the topic's options."
        )

    def fenced(self, reason: str) -> FencedError:
        """Another producer has taken over.

        Args:
            reason: how that is known.
        """
        return FencedError(
            f"Another producer has taken over the topics of {self.prefix} at {self.servers} ({reason}). "
            "Next: nothing, if a newer one is active; it continues from the same marker."
        )
