"""Options of Kafka's client, by the names of Java's producer and those of librdkafka.

A connector's users have Java's names (`sasl.jaas.config`, `ssl.truststore.location`). `JAVA` brings each to librdkafka's; all others go
through as they are, and librdkafka refuses what it does not have (`client.made`). So nothing that was requested is silently left out;
options of the JVM that change nothing that is written are named in the log.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cdc_assets.adapters.kafka.sizes import DEFAULT_BYTES
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConfigurationError

log = logging.getLogger(__name__)

JAVA: Final[Mapping[str, tuple[str, ...]]] = {
    "sasl.mechanism": ("sasl.mechanisms",),
    "max.request.size": ("message.max.bytes",),
    "compression.codec": ("compression.type",),
    "compression.gzip.level": ("compression.level",),
    "compression.lz4.level": ("compression.level",),
    "compression.zstd.level": ("compression.level",),
    "delivery.timeout.ms": ("message.timeout.ms",),
    "metadata.max.age.ms": ("metadata.max.age.ms", "topic.metadata.refresh.interval.ms"),
    "send.buffer.bytes": ("socket.send.buffer.bytes",),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes",),
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
    "sasl.oauthbearer.client.credentials.client.id": ("sasl.oauthbearer.client.id",),
    "sasl.oauthbearer.client.credentials.client.secret": ("sasl.oauthbearer.client.secret",),
}
"""What Java's options are named in librdkafka."""
_OF_PEM: Final = ("ssl.truststore.location", "ssl.keystore.location")
"""Java's files of certificates, which must be PEM."""
_OF_JAVA_ALONE: Final = re.compile(
    r"buffer\.memory|max\.block\.ms|metadata\.max\.idle\.ms|metric.*|auto\.include\.jmx\.reporter|"
    r"partitioner\.(adaptive|availability)\..*|partitioner\.(class|ignore\.keys)|socket\.connection\.setup\.timeout\.max\.ms|"
    r"sasl\.login\..*|sasl\.kerberos\.ticket\..*|sasl\.oauthbearer\.(jwks|clock|expected|sub|scope\.claim|header)\..*|"
    r"ssl\.(protocol|enabled\.protocols)|ssl\.(truststore|keystore)\.(type|password)|ssl\.(keymanager|trustmanager)\.algorithm"
)
"""What only the JVM's client has, and changes nothing that is written."""
_DESERIALIZERS: Final = ("key.deserializer", "value.deserializer")
_ONLY: Final = {
    "partitioner": ("murmur2_random",),
    "partitioner.class": ("org.apache.kafka.clients.producer.internals.DefaultPartitioner",),
    "partitioner.ignore.keys": ("false",),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "ssl.protocol": ("TLS", "TLSv1.3"),
    "ssl.enabled.protocols": ("TLSv1.2,TLSv1.3", "TLSv1.3,TLSv1.2"),
    "sasl.oauthbearer.method": ("oidc",),
    "sasl.oauthbearer.header.urlencode": ("false",),
}
"""Options of which other values would be left out, or write something else."""
_OWN: Final = re.compile(
    r"transactional\.id|bootstrap\.servers|metadata\.broker\.list|delivery\.report\.only\.error|default\.topic\.config|"
    r"plugin\.library\.paths|test\..*|topic\.blacklist|enable\.gapless\.guarantee|log\.queue|dr_.*|.*_cb|on_.*|logger|opaque"
)
"""What the publisher sets itself, or what is no text."""
_BATCH_BYTES: Final = 1_000_000
"""Bytes of a batch with several records, before compression."""
_MIN_TRANSACTION_MS: Final = 30_000
"""A transaction lasts for 20 seconds or a little longer (`publish.publisher`)."""
_TRANSACTION_MS: Final = 60_000
_BASE: Final = {
    "linger.ms": "100",  # only full batches: a commit sends what there is at once
    "batch.size": str(_BATCH_BYTES),
    "message.max.bytes": str(DEFAULT_BYTES),
    "queue.buffering.max.kbytes": "32768",
    "partitioner": "murmur2_random",
}
_JAAS: Final = {
    "username": "sasl.username",
    "password": "sasl.password",
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "serviceName": "sasl.kerberos.service.name",
    "principal": "sasl.kerberos.principal",
    "keyTab": "sasl.kerberos.keytab",
}
_JAAS_OPTION: Final = re.compile(r"""\s+(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_JAAS_HEAD: Final = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_JAAS_EXTENSION: Final = "extension_"
_OF_JAAS_ALONE: Final = re.compile(
    r"useKeyTab|storeKey|doNotPrompt|useTicketCache|renewTGT|refreshKrb5Config|isInitiator|debug"
)
"""Options of Java's Kerberos module that say how it logs in, and not as whom."""
_OF_CONNECTIONS: Final = re.compile(
    r"security\.protocol|sasl\.(mechanisms|username|password)|"
    r"sasl\.kerberos\.(service\.name|principal|keytab|kinit\.cmd|min\.time\.before\.relogin)|"
    r"sasl\.oauthbearer\..*|https\..*|ssl\..*|client\.(id|rack|dns\.lookup)|connections\.max\.idle\.ms|"
    r"enable\.(ssl\.certificate\.verification|sasl\.oauthbearer\.unsecure\.jwt)|socket\.(?!connection\.setup\.timeout\.max\.).*|broker\..*|reconnect\..*"
)
"""What librdkafka's clients, which produce nothing, have as well."""


def producer_options(settings: KafkaSettings, transactional_id: str) -> dict[str, Any]:
    """Options of the client that writes; they may hold secrets, and are never printed.

    Raises:
        ConfigurationError: an option is wrong.
    """
    _check(settings.producer)
    given = canonical(settings.producer)
    transaction_ms = whole(given, "transaction.timeout.ms", _TRANSACTION_MS)
    if transaction_ms < _MIN_TRANSACTION_MS:
        _refuse("transaction.timeout.ms", str(transaction_ms), f"at least {_MIN_TRANSACTION_MS}")
    if "message.timeout.ms" in given:  # Java's may be longer than a transaction
        given["message.timeout.ms"] = str(min(whole(given, "message.timeout.ms", 0), transaction_ms))
    fixed = {"bootstrap.servers": settings.servers, "transactional.id": transactional_id, "log_level": 3}
    return {**_BASE, **given, **fixed}


def is_of_java_alone(name: str) -> bool:
    """Whether it is an option that only the JVM's client has, and that changes nothing that is written."""
    return _OF_JAVA_ALONE.fullmatch(name) is not None


def whole(options: Mapping[str, str], name: str, default: int) -> int:
    """A number among the options.

    Raises:
        ConfigurationError: it is none.
    """
    text = options.get(name, str(default)).strip()
    if not re.fullmatch(r"[0-9]{1,10}", text):
        _refuse(name, text, "a whole number")
    return int(text)


def _check(options: tuple[tuple[str, str], ...]) -> None:
    free = []
    for name, text in options:
        if _OWN.fullmatch(name):
            _refuse(name, "(given)", "no option that the publisher sets itself")
        allowed = _ONLY.get(JAVA.get(name, (name,))[0])
        if allowed and text.replace(" ", "") not in allowed:
            _refuse(name, text, " or ".join(allowed))
        if is_of_java_alone(name):
            free.append(name)
    if free:
        log.info("Options of Java's producer that change nothing here: %s.", ", ".join(sorted(free)))


def _refuse(name: str, text: str, expected: str) -> None:
    raise ConfigurationError(f"producer.{name}", text, expected, "correct it, or leave it out")


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """Options of a client of librdkafka, which does not produce."""
    return of_connections(settings.servers, settings.producer)


def of_connections(servers: str, options: tuple[tuple[str, str], ...], prefix: str = "producer") -> dict[str, Any]:
    """Those among the options of a client that any client of librdkafka has."""
    given = canonical(options, prefix)
    own = {name: text for name, text in given.items() if _OF_CONNECTIONS.fullmatch(name)}
    return {"bootstrap.servers": servers, "log_level": 3} | own


def consumer_options(options: tuple[tuple[str, str], ...], prefix: str) -> dict[str, str]:
    """Options of a client that reads.

    Raises:
        ConfigurationError: an option is wrong.
    """
    found = canonical(options, prefix)
    return {name: text for name, text in found.items() if name not in _DESERIALIZERS}


def canonical(options: tuple[tuple[str, str], ...], prefix: str = "producer") -> dict[str, str]:
    """Options by librdkafka's names, without those that only the JVM's client has.

    Args:
        options: of a client.
        prefix: of their properties.

    Raises:
        ConfigurationError: a file of certificates is not PEM.
    """
    found: dict[str, str] = {}
    for name, text in options:
        if name in _OF_PEM:
            _check_pem(f"{prefix}.{name}", text)
        if name == "sasl.jaas.config":
            for own, value in _of_jaas(f"{prefix}.{name}", text).items():
                found.setdefault(own, value)
        elif name == "connections.max.idle.ms" and text.strip() == "-1":  # never, as Java says it
            found[name] = "0"
        elif name in JAVA:
            for own in JAVA[name]:
                found.setdefault(own, text.strip())
        elif not is_of_java_alone(name):
            found[name] = text
    if found.get("ssl.endpoint.identification.algorithm") == "":  # Java's way to turn it off
        found["ssl.endpoint.identification.algorithm"] = "none"
    if found.get("sasl.mechanisms", "").strip().upper() == "OAUTHBEARER":
        found.setdefault("sasl.oauthbearer.method", "oidc")
    return found


def _of_jaas(name: str, text: str) -> dict[str, str]:
    """The options of one login module of Java's, by librdkafka's names.

    Raises:
        ConfigurationError: it is something else, or has an option without such a name; no value is in the message.
    """
    found, extensions = dict[str, str](), list[str]()
    head = _JAAS_HEAD.match(text)
    at = head.end() if head else len(text)
    while option := _JAAS_OPTION.match(text, at):
        own, value, at = option[1], re.sub(r"\\(.)", r"\1", option[2] or option[3] or option[4] or ""), option.end()
        if own in _JAAS:
            found[_JAAS[own]] = value
        elif own.startswith(_JAAS_EXTENSION):
            extensions.append(f"{own.removeprefix(_JAAS_EXTENSION)}={value}")
        elif not _OF_JAAS_ALONE.fullmatch(own):
            known = ", ".join([*_JAAS, f"{_JAAS_EXTENSION}…"])
            raise ConfigurationError(name, f"(given, with {own})", f"options among {known}", "leave that one out")
    if not head or text[at:].strip() not in ("", ";"):
        form = "one login module, its flag and its options, as Java's client takes them"
        raise ConfigurationError(name, "(given)", form, 'write it as \'module required username="…" password="…";\'')
    return found | ({"sasl.oauthbearer.extensions": ",".join(extensions)} if extensions else {})


def _check_pem(name: str, path: str) -> None:
    try:
        is_pem = b"-----BEGIN" in Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(name, path, f"a file ({error.strerror})", "correct it") from None
    if not is_pem:
        step = "export it, with openssl pkcs12 -in store.p12 -out store.pem -nodes"
        raise ConfigurationError(name, path, "certificates as PEM; stores of the JVM are not read", step)
