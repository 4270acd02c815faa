"""What errors of Kafka's client mean."""

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from cdc_assets.adapters.kafka.errors import Translation
from cdc_assets.errors import ConnectionLostError, FencedError, PreflightError

OWN = Translation(confluent_kafka, "a:1", "shop", "cdc-assets-shop", "shop.__published")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(KafkaError._FENCED), FencedError),
        (KafkaError(KafkaError.PRODUCER_FENCED), FencedError),
        (KafkaError(KafkaError.INVALID_PRODUCER_EPOCH), FencedError),
        (KafkaError(KafkaError._FATAL), FencedError),
        (KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True), FencedError),
        (KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True), PreflightError),
        (KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT, fatal=True), PreflightError),
        (KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, fatal=True), PreflightError),
        (KafkaError(KafkaError._TRANSPORT), ConnectionLostError),
        (KafkaError(KafkaError._TIMED_OUT), ConnectionLostError),
        (KafkaError(KafkaError._MSG_TIMED_OUT, txn_requires_abort=True), ConnectionLostError),
    ],
)
def test_what_is_raised(error: KafkaError, kind: type[Exception]) -> None:
    assert type(OWN.error([error])) is kind


def test_what_is_told_of_a_record_explains_what_the_call_does_not_say() -> None:
    whole = KafkaError(KafkaError._FATAL, fatal=True)
    right = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert type(OWN.error([whole, right])) is PreflightError
    over = KafkaError(KafkaError._STATE)
    assert type(OWN.error([over, KafkaError(KafkaError.INVALID_PRODUCER_EPOCH)])) is FencedError


def test_refusals_for_good_are_told_by_topic() -> None:
    errors = {
        "a": KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"),
        "b": KafkaError(KafkaError.INVALID_RECORD, "no key"),
        "c": KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"),
        "d": KafkaError(KafkaError._PURGE_QUEUE, "purged"),
    }
    found = OWN.refusals({(topic, error.code()): error for topic, error in errors.items()})
    assert set(found) == {"a", "b", "c"}
    assert "WRITE on the topic c" in found["c"]


def test_a_refusal_counts_beside_what_follows_from_it() -> None:
    errors = [KafkaError(KafkaError._PURGE_QUEUE, "purged"), KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large")]
    assert OWN.refusals({("a", error.code()): error for error in errors}) == {"a": "too large"}
