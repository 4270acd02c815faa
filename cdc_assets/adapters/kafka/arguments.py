"""Arguments of aiokafka's producer out of options by the names of Java's producer and those of librdkafka.

An option that the client does not have is refused, so that nothing that was asked for is silently left out; tuning that
changes nothing that is written is named in the log.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_assets.adapters.kafka.compression import CODECS
from cdc_assets.adapters.kafka.options import SAME, STORES, canonical
from cdc_assets.adapters.kafka.security import security_arguments
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConfigurationError

log = logging.getLogger(__name__)

_FREE: Final = re.compile(
    r"buffer\.memory|batch\.size|linger\.ms|max\.in\.flight(\.requests\.per\.connection)?|retries|message\.send\.max\.retries|"
    r"max\.block\.ms|(send|receive)\.buffer\.bytes|reconnect\.backoff\.(max\.)?ms|retry\.backoff\.max\.ms|metadata\.max\.idle\.ms|"
    r"metadata\.recovery\..*|metric.*|auto\.include\.jmx\.reporter|enable\.(metrics\.push|idempotence)|"
    r"client\.(rack|dns\.lookup)|partitioner\.(adaptive|availability)\..*|socket\..*|broker\..*|queue\.buffering\..*|"
    r"batch\.num\.messages|statistics\..*|log.*|debug|api\.version\..*|sticky\..*|message\.copy\.max\.bytes|"
    r"sasl\.login\..*|sasl\.kerberos\..*|sasl\.oauthbearer\.(jwks|clock|expected|sub|scope\.claim)\..*|"
    r"ssl\.(truststore|keystore)\.(type|password)|ssl\.(keymanager|trustmanager)\.algorithm"
)
"""What changes nothing that is written."""
_ONLY: Final = {
    "acks": ("all", "-1"),
    "partitioner": ("murmur2_random",),
    "partitioner.class": ("org.apache.kafka.clients.producer.internals.DefaultPartitioner",),
    "partitioner.ignore.keys": ("false",),
    "sasl.oauthbearer.method": ("oidc",),
    "sasl.oauthbearer.header.urlencode": ("false",),
}
_LEVELS: Final = {"gzip": (1, 9), "lz4": (0, 17), "zstd": (-(2**17), 22)}
_COMPRESSIONS: Final = ("none", *CODECS)


_MOST: Final = 2**31 - 1
_LEAST: Final = {
    "request.timeout.ms": 1,
    "retry.backoff.ms": 1,
    "metadata.max.age.ms": 10,
    "connections.max.idle.ms": -1,
    "transaction.timeout.ms": 30_000,
    "message.max.bytes": 1000,
    "delivery.timeout.ms": 1,
}
"""The least number of each option. A transaction lasts for 20 seconds or a little longer (`publish.publisher`)."""
_ARGUMENTS: Final = {
    "client.id": "client_id",
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "transaction.timeout.ms": "transaction_timeout_ms",
}
_SECURITY: Final = re.compile(
    r"security\.protocol|sasl\.(mechanisms|username|password|kerberos\.service\.name)|"
    r"sasl\.oauthbearer\.(client\.id|client\.secret|token\.endpoint\.url|scope|extensions)|"
    r"ssl\.(ca|certificate|key)\.(location|pem)|ssl\.key\.password|ssl\.endpoint\.identification\.algorithm|ssl\.cipher\.suites|"
    r"ssl\.(protocol|enabled\.protocols)|enable\.ssl\.certificate\.verification"
)
_LEVEL: Final = re.compile(r"compression\.((gzip|lz4|zstd)\.)?level")
_OWN: Final = ("message.max.bytes", "compression.type", "delivery.timeout.ms")


@dataclass(frozen=True)
class ProducerOptions:
    """Of the client that writes.

    Args:
        arguments: of `AIOKafkaProducer`; may hold secrets, never printed.
        compression: a name of `compression.CODECS`, empty for none, and its level, None for the default.
        most_bytes: the largest batch; 0 if that is not said.
        delivery_s: for how long the client tries to deliver; 0 if that is not said.
    """

    arguments: Mapping[str, Any] = field(repr=False)
    compression: tuple[str, int | None]
    most_bytes: int
    delivery_s: float

    @classmethod
    def of(cls, settings: KafkaSettings, transactional_id: str) -> "ProducerOptions":
        """From the properties.

        Raises:
            ConfigurationError: an option is unknown, or wrong.
        """
        given = canonical(settings.producer)
        _check(given)
        arguments: dict[str, Any] = {"request_timeout_ms": 30_000}
        for name, argument in _ARGUMENTS.items():
            if name in given:
                arguments[argument] = _value(name, given[name])
        fixed = {
            "bootstrap_servers": [server.strip() for server in settings.servers.split(",")],
            "transactional_id": transactional_id,
            "acks": "all",
        }
        most_bytes, delivery_ms = (
            _value(name, given[name]) if name in given else 0 for name in ("message.max.bytes", "delivery.timeout.ms")
        )
        return cls(arguments | security_arguments(given) | fixed, _compression(given), most_bytes, delivery_ms / 1000)


def _value(name: str, text: str) -> Any:
    if name not in _LEAST:
        return text.strip()
    number = _number(name, text, _LEAST[name], _MOST)
    if name == "connections.max.idle.ms" and number <= 0:  # never, as Java and librdkafka say it
        return None
    return number


def _number(name: str, text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,10}", text.strip()) or not least <= int(text) <= most:
        raise ConfigurationError(f"producer.{name}", text, f"a whole number from {least} to {most}", "correct it")
    return int(text)


def _check(given: Mapping[str, str]) -> None:
    free = []
    for name, text in given.items():
        allowed = _ONLY.get(name)
        if allowed and text.strip() not in allowed:
            raise ConfigurationError(f"producer.{name}", text, " or ".join(allowed), "leave it out")
        if _FREE.fullmatch(name) and not _is_taken(name):
            free.append(name)
        elif not _is_taken(name):
            raise ConfigurationError(
                f"producer.{name}",
                "(given)",
                "an option of Java's producer or of librdkafka that the client here has",
                "leave it out; docs/kafka.md lists them",
            )
    if free:
        log.info("Options of the producer that change nothing here: %s.", ", ".join(sorted(free)))


def is_option(name: str) -> bool:
    """Whether it is an option of Java's producer or of librdkafka that the client here has, or may leave out."""
    return (
        name == "sasl.jaas.config" or name in STORES or _is_taken(SAME.get(name, name)) or bool(_FREE.fullmatch(name))
    )


def _is_taken(name: str) -> bool:
    patterns = _SECURITY, _LEVEL
    return name in (*_ONLY, *_ARGUMENTS, *_OWN) or any(pattern.fullmatch(name) for pattern in patterns)


def _compression(given: Mapping[str, str]) -> tuple[str, int | None]:
    kind = given.get("compression.type", "none").strip()
    if kind not in _COMPRESSIONS:
        raise ConfigurationError("producer.compression.type", kind, ", ".join(_COMPRESSIONS), "choose one of them")
    if kind == "none":
        return "", None
    name = next((one for one in (f"compression.{kind}.level", "compression.level") if one in given), "")
    if not name or kind not in _LEVELS or given[name].strip() == "-1":
        return kind, None
    return kind, _number(name, given[name], *_LEVELS[kind])
