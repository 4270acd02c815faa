"""Certificates, users and tokens of a connection, as aiokafka takes them."""

import importlib.util
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from cdc_assets.adapters.kafka.tokens import ClientTokens
from cdc_assets.errors import ConfigurationError

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_FORMER: Final = ("SSLv3", "TLSv1", "TLSv1.1")
"""Versions that may be listed beside the others, as in Kafka's former defaults, and are not used."""


def security_arguments(given: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of `AIOKafkaProducer`.

    Args:
        given: options by librdkafka's names.

    Raises:
        ConfigurationError: an option is wrong.
    """
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise ConfigurationError("producer.security.protocol", protocol, ", ".join(_PROTOCOLS), "choose one of them")
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl_context"] = _context(given)
    if protocol.startswith("SASL"):
        found |= _sasl(given)
    return found


def _sasl(given: Mapping[str, str]) -> dict[str, Any]:
    mechanism = given.get("sasl.mechanisms", "GSSAPI").strip().upper()
    if mechanism not in _MECHANISMS:
        raise ConfigurationError("producer.sasl.mechanism", mechanism, ", ".join(_MECHANISMS), "choose one of them")
    found: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return found | {"sasl_oauth_token_provider": _tokens(given)}
    if mechanism == "GSSAPI":
        if importlib.util.find_spec("gssapi") is None:
            step = "pip install gssapi, which needs Kerberos' headers and a compiler"
            raise ConfigurationError("producer.sasl.mechanism", mechanism, "one whose library is installed", step)
        return found | {"sasl_kerberos_service_name": given.get("sasl.kerberos.service.name", "kafka")}
    for name in ("sasl.username", "sasl.password"):
        if name not in given:
            raise ConfigurationError(f"producer.{name}", None, f"a text, since the mechanism is {mechanism}", "add it")
    return found | {"sasl_plain_username": given["sasl.username"], "sasl_plain_password": given["sasl.password"]}


def _context(given: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=given.get("ssl.ca.location"), cadata=given.get("ssl.ca.pem"))
        with _certificate(given) as (certificate, key):
            if certificate:
                password = given.get("ssl.key.password", "")  # else the process would ask for it at its terminal
                context.load_cert_chain(certificate, key, lambda: password)
        if suites := given.get("ssl.cipher.suites", "").strip():
            context.set_ciphers(":".join(one.strip() for one in suites.replace(":", ",").split(",")))
    except (OSError, ssl.SSLError, ValueError) as error:
        names = ", ".join(sorted(f"producer.{name}" for name in given if name.startswith("ssl.")))
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "they cannot be read"
        expected = f"certificates, a key and ciphers that OpenSSL reads ({reason})"
        raise ConfigurationError(names or "producer.ssl", "(given)", expected, "check the files") from None
    _set_versions(context, given)
    if given.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == "none":
        context.check_hostname = False
    if given.get("enable.ssl.certificate.verification", "true").strip().lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _set_versions(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """As in Java: `ssl.enabled.protocols` are those that are used, `ssl.protocol` is the newest of them."""
    found = {}
    for name in ("ssl.enabled.protocols", "ssl.protocol"):
        texts = {text.strip() for text in given.get(name, "").split(",")} - {"", "TLS"}
        found[name] = [_VERSIONS[text] for text in texts if text in _VERSIONS]
        if texts - {*_VERSIONS, *_FORMER} or (texts and not found[name]):
            raise ConfigurationError(f"producer.{name}", given[name], " or ".join(_VERSIONS), "choose among them")
    if enabled := found["ssl.enabled.protocols"]:
        context.minimum_version, context.maximum_version = min(enabled), max(enabled)
    if newest := found["ssl.protocol"]:
        context.maximum_version = min(*newest, context.maximum_version) if enabled else max(newest)


@contextmanager
def _certificate(given: Mapping[str, str]) -> Iterator[tuple[str | None, str | None]]:
    """Files of the client's certificate and key; OpenSSL reads no others."""
    with ExitStack() as stack:
        files: dict[str, str | None] = {}
        for part in ("certificate", "key"):
            files[part] = given.get(f"ssl.{part}.location")
            if text := given.get(f"ssl.{part}.pem"):
                file = Path(stack.enter_context(TemporaryDirectory())) / part  # which nobody else may enter
                file.write_text(text)
                files[part] = str(file)
        yield files["certificate"], files["key"]


def _tokens(given: Mapping[str, str]) -> ClientTokens:
    start = "sasl.oauthbearer."
    for name in ("token.endpoint.url", "client.id", "client.secret"):
        if not given.get(start + name, "").strip():
            raise ConfigurationError(
                f"producer.{start}{name}", None, "a text, since the mechanism is OAUTHBEARER", "add it"
            )
    extensions = dict(pair.split("=", 1) for pair in given.get(f"{start}extensions", "").split(",") if "=" in pair)
    return ClientTokens(
        given[f"{start}token.endpoint.url"],
        given[f"{start}client.id"],
        given[f"{start}client.secret"],
        given.get(f"{start}scope", ""),
        extensions,
    )
