"""Options of Kafka's clients, by the names of Java's producer and those of librdkafka.

A connector's users have Java's names (`sasl.jaas.config`, `ssl.truststore.location`). Each is brought to one form, librdkafka's
names, which its clients take as they are; aiokafka's arguments (`arguments`) are made from the same.
"""

import re
from pathlib import Path
from typing import Any, Final

from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConfigurationError

SAME: Final = {
    "sasl.mechanism": "sasl.mechanisms",
    "max.request.size": "message.max.bytes",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
"""Other names of the same."""
STORES: Final = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
}
"""Java's files of certificates, which must be PEM, and what is in each."""
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
_JAAS_OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_OF_CONNECTIONS: Final = re.compile(
    r"security\.protocol|sasl\.(mechanisms|username|password)|"
    r"sasl\.kerberos\.(service\.name|principal|keytab|kinit\.cmd|min\.time\.before\.relogin)|"
    r"sasl\.oauthbearer\.(method|client\.id|client\.secret|token\.endpoint\.url|scope|extensions)|client\.(id|rack|dns\.lookup)|"
    r"ssl\.(ca|certificate|key)\.(location|pem)|ssl\.key\.password|ssl\.endpoint\.identification\.algorithm|ssl\.cipher\.suites|"
    r"enable\.ssl\.certificate\.verification|socket\.(?!connection\.setup\.timeout\.max\.).*|broker\..*|reconnect\..*"
)
"""What librdkafka's clients, which produce nothing, have as well."""


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """Options of a client of librdkafka, which does not produce."""
    return of_connections(settings.servers, settings.producer)


def of_connections(servers: str, options: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Those among the options of a client that any client of librdkafka has."""
    given = canonical(options)
    own = {name: text for name, text in given.items() if _OF_CONNECTIONS.fullmatch(name)}
    if "sasl.oauthbearer.client.id" in own:
        own.setdefault("sasl.oauthbearer.method", "oidc")
    return {"bootstrap.servers": servers, "log_level": 3} | own


def canonical(options: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Options by librdkafka's names, where it has one.

    Raises:
        ConfigurationError: a file of certificates is not PEM.
    """
    found: dict[str, str] = {}
    for name, text in options:
        if name == "sasl.jaas.config":
            for option, *values in _JAAS_OPTION.findall(text):
                if option in _JAAS:
                    found.setdefault(_JAAS[option], re.sub(r"\\(.)", r"\1", "".join(values)))
        elif name in STORES:
            _check_pem(name, text)
            for own in STORES[name]:
                found.setdefault(own, text)
        else:
            found[SAME.get(name, name)] = text
    if found.get("ssl.endpoint.identification.algorithm") == "":  # Java's way to turn it off
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _check_pem(name: str, path: str) -> None:
    try:
        is_pem = b"-----BEGIN" in Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"producer.{name}", path, f"a file ({error.strerror})", "correct it") from None
    if not is_pem:
        step = "export it, with openssl pkcs12 -in store.p12 -out store.pem -nodes"
        raise ConfigurationError(f"producer.{name}", path, "certificates as PEM; stores of the JVM are not read", step)
