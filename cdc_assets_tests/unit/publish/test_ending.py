"""Producers end their threads when they are closed, also while an error is raised; and an error that their client has lost is found."""

from pathlib import Path
from types import SimpleNamespace

import confluent_kafka
import pytest

from cdc_assets.adapters.kafka.transactions import Transactions
from cdc_assets.config.settings import KafkaSettings
from cdc_assets_tests.patience import wait_until


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_closing_ends_the_threads_though_the_error_is_kept() -> None:
    """There is no broker, so the start ends by its time limit."""
    options = {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "cdc-assets-ending", "log_level": 0}
    before = threads()
    own = Transactions(confluent_kafka, options, KafkaSettings("127.0.0.1:1"))
    assert threads() > before
    with pytest.raises((TimeoutError, confluent_kafka.KafkaException)) as kept:
        own.start(0.5)
    own.close()
    wait_until(lambda: threads() <= before, 5.0, lambda: f"{threads()} threads, and {before} before")
    assert kept.value is not None


def test_an_error_that_the_client_loses_is_asked_for_again() -> None:
    """Its flush returns nothing then, and Python has no error to raise."""
    fenced = confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._FENCED))

    class Losing:
        def __init__(self, *_: object, **__: object) -> None:
            self.answers: list[Exception] = [SystemError("flush returned NULL without setting an exception"), fenced]

        def flush(self, _: float) -> int:
            raise self.answers.pop(0)

    library = SimpleNamespace(**vars(confluent_kafka) | {"Producer": Losing})
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        Transactions(library, {}, KafkaSettings("127.0.0.1:1")).flush(1.0)
    assert raised.value is fenced
