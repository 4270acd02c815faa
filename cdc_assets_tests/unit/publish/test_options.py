"""Options of the client by Java's names and by librdkafka's."""

import logging
import re
import ssl
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from cdc_assets.adapters.kafka.arguments import ProducerOptions, is_option
from cdc_assets.adapters.kafka.batches import batches
from cdc_assets.adapters.kafka.columns import Columns
from cdc_assets.adapters.kafka.compression import Compression
from cdc_assets.adapters.kafka.options import connection_options
from cdc_assets.adapters.kafka.tokens import ClientTokens
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConfigurationError
from cdc_assets.publish.run import Run
from cdc_assets_tests.certificates import self_signed

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def settings(**options: str) -> KafkaSettings:
    given = tuple((name.replace("_", "."), text) for name, text in options.items())
    return KafkaSettings(servers="a:1,b:2", producer=given)


def arguments(**options: str) -> dict[str, Any]:
    return dict(ProducerOptions.of(settings(**options), "id").arguments)


@pytest.mark.parametrize(
    "given",
    [
        {"sasl_mechanism": "PLAIN", "sasl_jaas_config": f'{PLAIN} required username="cdc" password="p\\"; x=1";'},
        {"sasl_mechanisms": "PLAIN", "sasl_username": "cdc", "sasl_password": 'p"; x=1'},
    ],
)
def test_java_and_librdkafka_name_the_same_user(given: dict[str, str]) -> None:
    found = arguments(security_protocol="SASL_PLAINTEXT", **given)
    assert found["sasl_mechanism"] == "PLAIN"
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("cdc", 'p"; x=1')
    others = connection_options(settings(security_protocol="SASL_PLAINTEXT", **given))
    assert (others["sasl.username"], others["sasl.password"]) == ("cdc", 'p"; x=1')
    assert others["sasl.mechanisms"] == "PLAIN"
    assert "sasl.jaas.config" not in others


def test_files_of_certificates_have_names_in_java_and_in_librdkafka(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    java = {"ssl_truststore_location": str(certificate), "ssl_keystore_location": str(both), "ssl_keystore_type": "PEM"}
    native = {"ssl_ca_location": str(certificate), "ssl_certificate_location": str(certificate)}
    native["ssl_key_location"] = str(key)
    inline = {"ssl_ca_pem": certificate.read_text(), "ssl_keystore_key": key.read_text()}
    inline["ssl_keystore_certificate_chain"] = certificate.read_text()
    for given in (java, native, inline):
        context = arguments(security_protocol="ssl", **given)["ssl_context"]
        assert [one["serialNumber"] for one in context.get_ca_certs()] == ["01"]
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    others = connection_options(settings(**java))
    assert others["ssl.ca.location"] == str(certificate)
    assert others["ssl.certificate.location"] == others["ssl.key.location"] == str(both)


def test_checks_of_certificates_are_turned_off_as_in_java_and_in_librdkafka() -> None:
    java = arguments(security_protocol="SSL", ssl_endpoint_identification_algorithm="")["ssl_context"]
    assert (java.check_hostname, java.verify_mode) == (False, ssl.CERT_REQUIRED)
    native = arguments(security_protocol="SSL", enable_ssl_certificate_verification="false")["ssl_context"]
    assert native.verify_mode == ssl.CERT_NONE
    assert (
        connection_options(settings(ssl_endpoint_identification_algorithm=""))["ssl.endpoint.identification.algorithm"]
        == "none"
    )


@pytest.mark.parametrize("password", ["right", "wrong", None])
def test_a_key_with_a_password(tmp_path: Path, password: str | None) -> None:
    certificate, key = self_signed(tmp_path, b"right")
    given = {"ssl_certificate_location": str(certificate), "ssl_key_location": str(key)}
    given |= {"ssl_key_password": password} if password else {}
    if password == "right":
        assert arguments(security_protocol="SSL", **given)["ssl_context"]
        return
    with pytest.raises(ConfigurationError, match=r"ssl\.key\.location") as told:
        arguments(security_protocol="SSL", **given)
    assert "wrong" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("acks", "1", "all or -1"),
        ("compression_type", "brotli", "none, gzip, snappy, lz4, zstd"),
        ("request_timeout_ms", "soon", "a whole number"),
        ("partitioner", "random", "murmur2_random"),
        ("partitioner_class", "org.example.Own", "DefaultPartitioner"),
        ("interceptor_classes", "org.example.Own", "an option of"),
        ("security_protocol", "TLS", "SASL_SSL"),
        ("ssl_truststore_location", __file__, "PEM"),
        ("ssl_truststore_location", "/nowhere", "a file"),
    ],
)
def test_what_the_client_does_not_have_is_refused(name: str, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as error:
        arguments(**{name: text})
    assert "producer." + name.replace("_", ".") in str(error.value)


NUMBERS = {
    "request.timeout.ms": ("request_timeout_ms", 1, 0),
    "retry.backoff.ms": ("retry_backoff_ms", 1, 0),
    "metadata.max.age.ms": ("metadata_max_age_ms", 10, 9),
    "connections.max.idle.ms": ("connections_max_idle_ms", 1, -2),
    "transaction.timeout.ms": ("transaction_timeout_ms", 30_000, 29_999),
}


@pytest.mark.parametrize(("name", "argument", "least", "wrong"), [(name, *row) for name, row in NUMBERS.items()])
def test_numbers_reach_the_client_if_they_are_in_their_range(name: str, argument: str, least: int, wrong: int) -> None:
    for number in (least, 2**31 - 1):
        assert arguments(**{name: f" {number}"})[argument] == number
    for number in (wrong, 2**31):
        with pytest.raises(ConfigurationError, match=f"from .*{2**31 - 1}"):
            arguments(**{name: str(number)})


@pytest.mark.parametrize("number", ["0", "-1"])
def test_idle_connections_are_kept_if_java_or_librdkafka_is_told_so(number: str) -> None:
    assert arguments(connections_max_idle_ms=number)["connections_max_idle_ms"] is None


@pytest.mark.parametrize(
    ("kind", "name", "taken", "wrong"),
    [
        ("gzip", "compression.gzip.level", ["1", "9"], ["0", "10"]),
        ("gzip", "compression.level", ["1", "9"], ["0", "10"]),
        ("lz4", "compression.lz4.level", ["0", "17"], ["-2", "18"]),
        ("zstd", "compression.zstd.level", ["-5", "22"], ["23", "-131073", "high"]),
    ],
)
def test_levels_of_compression_are_those_that_the_codec_has(
    kind: str, name: str, taken: list[str], wrong: list[str]
) -> None:
    values = pa.array([b"like" * 100] * 3, pa.large_binary())
    records = Columns.of(Run(1, pa.array(["1", "2", "3"]), values, values))
    for text in (*taken, "-1"):
        chosen = ProducerOptions.of(settings(**{"compression.type": kind, name: text}), "id").compression
        assert chosen == (kind, None if text == "-1" else int(text))
        [batch] = batches(records, 1, 10**6, Compression(*chosen))
        assert sum(map(len, batch.parts())) < 400
    for text in wrong:
        with pytest.raises(ConfigurationError, match=name):
            arguments(**{"compression.type": kind, name: text})


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl_enabled_protocols": "TLSv1.3, TLSv1.2,TLSv1.1"}, "TLSv1_2", "TLSv1_3"),
        ({"ssl_protocol": "TLSv1.3"}, "TLSv1_2", "MAXIMUM_SUPPORTED"),
        ({"ssl_protocol": "TLS"}, "TLSv1_2", "MAXIMUM_SUPPORTED"),
        ({"ssl_protocol": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl_protocol": "TLSv1.2", "ssl_enabled_protocols": "TLSv1.2,TLSv1.3"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "", ""),
        ({"ssl_enabled_protocols": "TLSv1.2,TLSv2"}, "", ""),
    ],
)
def test_versions_of_tls_are_javas(given: dict[str, str], least: str, most: str) -> None:
    if not least:
        with pytest.raises(ConfigurationError, match=r"ssl\.enabled\.protocols"):
            arguments(security_protocol="SSL", **given)
        return
    context = arguments(security_protocol="SSL", **given)["ssl_context"]
    newest = ssl.TLSVersion.TLSv1_3 if most == "MAXIMUM_SUPPORTED" else ssl.TLSVersion[most]
    assert context.minimum_version == ssl.TLSVersion[least]
    assert context.maximum_version in (newest, ssl.TLSVersion[most])


ELSEWHERE = {
    "sasl.kerberos.ticket.renew.jitter": "0.05",
    "sasl.kerberos.ticket.renew.window.factor": "0.8",
    "sasl.oauthbearer.clock.skew.seconds": "30",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "me",
    "sasl.oauthbearer.header.urlencode": "false",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
    "sasl.oauthbearer.jwks.endpoint.url": "https://id/keys",
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.oauthbearer.sub.claim.name": "sub",
    "socket.connection.setup.timeout.max.ms": "30000",
    "socket.connection.setup.timeout.ms": "10000",
    "socket.keepalive.enable": "true",
    "reconnect.backoff.max.ms": "1000",
    "client.dns.lookup": "use_all_dns_ips",
    "metadata.recovery.strategy": "rebootstrap",
    "statistics.interval.ms": "1000",
    "max.block.ms": "60000",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_one_of_the_clients_lacks_does_not_stop_the_other(name: str) -> None:
    given = settings(**{name: ELSEWHERE[name]})
    assert ProducerOptions.of(given, "id").arguments["acks"] == "all"
    assert AdminClient(connection_options(given)) is not None


def test_what_is_promised_is_taken() -> None:
    table = (
        (Path(__file__).parents[3] / "docs/kafka.md")
        .read_text()
        .partition("| `producer.…` | |")[2]
        .partition("\n\n")[0]
    )
    promised = {name for name in re.findall(r"`([a-z0-9.]+)`", table) if "." in name and not name.startswith(".")}
    assert len(promised) > 30
    assert not {name for name in promised if not is_option(name)}


SECRETS = {
    "sasl.password": "hidden-1",
    "ssl.key.password": "hidden-2",
    "ssl.keystore.password": "hidden-3",
    "ssl.key.pem": "hidden-4",
    "sasl.oauthbearer.client.secret": "hidden-5",
    "sasl.jaas.config": f'{PLAIN} required username="cdc" password="hidden-6";',
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"acks": "1"},
        {"unknown": "x"},
        {"compression.type": "x"},
        {"request.timeout.ms": "x"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "SSL", "ssl.certificate.location": "/nowhere"},
        {"security.protocol": "SSL", "ssl.ca.pem": "hidden-7"},
    ],
)
def test_no_secret_is_told(wrong: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigurationError) as told:
        arguments(**SECRETS, **wrong)
    assert "hidden" not in str(told.value) + caplog.text
    right = settings(**SECRETS, **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"})
    assert "hidden" not in repr(right) + repr(ProducerOptions.of(right, "id")) + caplog.text


def test_an_unknown_option_is_named_without_its_value() -> None:
    with pytest.raises(ConfigurationError, match=r"producer\.own\.token") as error:
        arguments(own_token="secret")
    assert "secret" not in str(error.value)


def test_tuning_that_changes_nothing_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    arguments(buffer_memory="1", linger_ms="5", queue_buffering_max_messages="10", sasl_login_class="x")
    [message] = caplog.messages
    assert "buffer.memory, linger.ms, queue.buffering.max.messages, sasl.login.class" in message


def test_limits_and_compression() -> None:
    given = settings(
        message_max_bytes="5000", delivery_timeout_ms="9000", compression_type="zstd", compression_zstd_level="7"
    )
    found = ProducerOptions.of(given, "id")
    assert (found.most_bytes, found.delivery_s, found.compression) == (5000, 9.0, ("zstd", 7))
    assert found.arguments == {
        "request_timeout_ms": 30_000,
        "security_protocol": "PLAINTEXT",
        "bootstrap_servers": ["a:1", "b:2"],
        "transactional_id": "id",
        "acks": "all",
    }


def test_a_login_with_tokens_takes_its_credentials_from_java_or_librdkafka() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = f"{module} required clientId='cdc' clientSecret='s' scope='kafka' ;"
    url = {"sasl_oauthbearer_token_endpoint_url": "https://id/token"}
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": jaas, **url}
    assert isinstance(arguments(**given)["sasl_oauth_token_provider"], ClientTokens)
    others = connection_options(settings(**given))
    assert others["sasl.oauthbearer.method"] == "oidc"
    assert others["sasl.oauthbearer.client.secret"] == "s"
    del given["sasl_jaas_config"]
    with pytest.raises(ConfigurationError, match=r"sasl\.oauthbearer\.client\.id"):
        arguments(**given)
