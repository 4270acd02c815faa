"""A producer that is closed ends its threads, also while an error is on its way."""

from pathlib import Path

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
