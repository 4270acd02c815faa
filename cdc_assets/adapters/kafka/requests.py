"""Requests that carry batches to a broker, joined once.

aiokafka encodes a request from the inside out, and copies its batches at each of seven levels, in the one thread of its loop. Here the
parts are listed in their order and joined. The order is that of its own description of the request, which is the same since the first
version that has transactions.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from aiokafka.producer.sender import SendProduceReqHandler
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.types import Int16, Int32, String

_TEXT = String("utf-8")


class _Joined:
    """Encodes a request of aiokafka whose batches are parts of their bytes."""

    transactional_id: str
    required_acks: int
    timeout: int
    topics: Sequence[tuple[str, Sequence[tuple[int, Sequence[Any]]]]]

    def encode(self) -> bytes:
        """Its bytes."""
        return b"".join(self._parts())

    def _parts(self) -> Iterator[Any]:
        yield _TEXT.encode(self.transactional_id)
        yield Int16.encode(self.required_acks)
        yield Int32.encode(self.timeout)
        yield Int32.encode(len(self.topics))
        for topic, batches in self.topics:
            yield _TEXT.encode(topic)
            yield Int32.encode(len(batches))
            for partition, parts in batches:
                yield Int32.encode(partition)
                yield Int32.encode(sum(map(len, parts)))
                yield from parts


_JOINED = {kind: type(kind.__name__, (_Joined, kind), {}) for kind in ProduceRequest._CLASSES if kind.API_VERSION >= 3}


class JoinedRequest(ProduceRequest):
    """See the module; batches are given as parts of their bytes."""

    def build(self, request_struct_class: Any) -> Any:
        """See `aiokafka.protocol.api.Request`."""
        return super().build(_JOINED.get(request_struct_class, request_struct_class))


class Handler(SendProduceReqHandler):
    """Sends a `JoinedRequest`."""

    def create_request(self) -> ProduceRequest:
        """See `SendProduceReqHandler`."""
        topics: dict[str, list[Any]] = defaultdict(list)
        for place, batch in self._batches.items():
            topics[place.topic].append((place.partition, batch._builder.parts()))
        own = self._sender
        name = own._txn_manager.transactional_id
        return JoinedRequest(name, own._acks, own._request_timeout_ms, list(topics.items()))
