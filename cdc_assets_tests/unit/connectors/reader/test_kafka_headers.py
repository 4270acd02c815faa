"""A header is no reason to put a whole message aside."""

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_assets.adapters.kafka import source as kafka
from cdc_assets.config.reader import KAFKA, Converter, ReaderSettings
from cdc_assets.connectors.reader.messages import Message


class Received:
    """A message with a header."""

    def __init__(self, header: bytes | None) -> None:
        self._header = header

    def error(self) -> None:
        """Nothing is wrong with it."""

    def topic(self) -> str:
        return "events"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 3

    def key(self) -> bytes:
        return b"1"

    def value(self) -> bytes:
        return b'{"id":1}'

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("trace", self._header)]


@pytest.mark.parametrize(
    ("header", "text"),
    [(b"\x00\x9f\xffa", "\x00\\x9f\\xffa"), ("ä".encode(), "ä"), (None, None)],
)
def test_bytes_that_are_no_text(monkeypatch: pytest.MonkeyPatch, header: bytes | None, text: str | None) -> None:
    consumer: Any = SimpleNamespace(
        list_topics=lambda timeout: SimpleNamespace(topics={}),
        consume=lambda most, timeout: [Received(header)],
        close=lambda: None,
    )
    library = SimpleNamespace(
        Consumer=lambda *_, **__: consumer,
        KafkaException=RuntimeError,
        TopicCollection=list,
        admin=SimpleNamespace(AdminClient=lambda *_, **__: consumer),
    )
    monkeypatch.setattr(kafka, "client_library", lambda *_: library)
    settings = ReaderSettings(KAFKA, "p", Converter(), Converter(), servers="nowhere:1", topics=("events",))
    [item] = kafka.KafkaSource(settings, [], lambda *_: None).read(0)
    assert isinstance(item, Message)
    assert item.headers == (("trace", text),)
