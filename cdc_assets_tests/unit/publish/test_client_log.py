"""What is logged of Kafka's client."""

import logging

import pytest

from cdc_assets.adapters.kafka import client
from cdc_assets.adapters.kafka.client import ClientLog
from cdc_assets.adapters.kafka.marker import KafkaMarker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConnectionLostError


def test_a_broker_that_is_away_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        KafkaMarker(KafkaSettings("127.0.0.1:1"), "shop", limit_s=1.0).newest()
    assert ["refused" in record.getMessage() for record in caplog.records] == [True]


def test_the_same_is_logged_again_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr(client.time, "monotonic", lambda: now)
    own = ClientLog()
    own.log(logging.ERROR, "%s [%s] away (after 3ms in state CONNECT)", "FAIL", "b1")
    own.log(logging.ERROR, "%s [%s] away (after 17ms in state CONNECT, 3 identical error(s) suppressed)", "FAIL", "b1")
    own.log(logging.ERROR, "%s [%s] away (after 3ms in state CONNECT)", "FAIL", "b2")
    now += 60
    own.log(logging.ERROR, "%s [%s] away (after 1ms in state CONNECT)", "FAIL", "b1")
    assert caplog.messages == ["FAIL [b1] away", "FAIL [b2] away", "FAIL [b1] away"]
