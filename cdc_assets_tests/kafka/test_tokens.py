"""OAUTHBEARER: a real broker that checks signed tokens, a token endpoint that fails for a while, connections that live for seconds."""

import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConnectionLostError
from cdc_assets.publish.records import RecordSlice
from cdc_assets_tests.certificates import self_signed
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import read_committed

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

LIFE_S, CONNECTION_S, OUTAGE_S = 6, 2, 8
SECRET = "5ecret:/+ ä"


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Issuer:
    """A token endpoint, and the key that its tokens are signed with."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.given, self.refused, self.away, self.life_s = 0, 0, (0.0, 0.0), LIFE_S
        own = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if own.away[0] < time.monotonic() < own.away[1]:
                    own.refused += 1
                    self.send_error(503)
                    return
                own.given += 1
                body = json.dumps({"access_token": own.token(), "expires_in": own.life_s}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/token"

    def keys(self) -> str:
        """As a JWKS."""
        public = self._key.public_key().public_numbers()
        return json.dumps(
            {
                "keys": [
                    {
                        "kty": "RSA",
                        "kid": "1",
                        "use": "sig",
                        "alg": "RS256",
                        "n": number(public.n),
                        "e": number(public.e),
                    }
                ]
            }
        )

    def token(self) -> str:
        """A signed one."""
        now = int(time.time())
        claims = {"iss": "https://id", "aud": "kafka", "sub": "cdc", "scope": "w", "iat": now, "exp": now + self.life_s}
        parts = [encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1", "typ": "JWT"}, claims)]
        signed = ".".join(parts)
        return f"{signed}.{encoded(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tokens"))[0]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificate: Path, issuer: Issuer) -> Iterator[Broker]:
    both, keys = certificate.parent / "both.pem", certificate.parent / "keys.json"
    both.write_bytes((certificate.parent / "key.pem").read_bytes() + certificate.read_bytes())
    keys.write_text(issuer.keys())
    security, own = "org.apache.kafka.common.security.oauthbearer", "listener.name.secured"
    options = {
        f"{own}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{own}.oauthbearer.sasl.jaas.config": f"{security}.OAuthBearerLoginModule required;",
        f"{own}.oauthbearer.sasl.server.callback.handler.class": f"{security}.OAuthBearerValidatorCallbackHandler",
        f"{own}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{own}.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        f"{own}.oauthbearer.sasl.oauthbearer.expected.issuer": "https://id",
        f"{own}.oauthbearer.connections.max.reauth.ms": str(CONNECTION_S * 1000),
    }
    java = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"]
    with Broker(tmp_path_factory.mktemp("kafka") / "broker", both, options=options, java=java) as running:
        yield running


def client(broker: Broker, issuer: Issuer, certificate: Path, prefix: str) -> KafkaBroker:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        f' clientId="cdc" clientSecret="{SECRET}" scope="w";',
        "sasl.oauthbearer.token.endpoint.url": issuer.address,
        "ssl.truststore.location": str(certificate),
        "request.timeout.ms": "5000",
        "delivery.timeout.ms": "30000",
    }
    return KafkaBroker(KafkaSettings(servers=broker.secured, producer=tuple(given.items())), prefix)


def records(begin: int, count: int) -> RecordSlice:
    column = pa.array([b"%d" % number for number in range(begin, begin + count)], pa.large_binary())
    return RecordSlice(1, pa.array([str(begin)] * count), column, pa.array([b"x" * 3000] * count, pa.large_binary()))


def test_tokens_and_connections_that_end_while_much_is_published(
    broker: Broker, issuer: Issuer, certificate: Path
) -> None:
    """Each connection lives for 2 s, each token for 6 s; then the endpoint is away for longer than a token lasts.

    A transaction whose batches have overtaken one another when its connection ended is repeated as a whole, as the publisher does it.
    """
    broker.create("tokens", 1)
    own = client(broker, issuer, certificate, "tokens")
    place, repeated = int(own.open() or 0), 0
    outage = time.monotonic() + 2 * LIFE_S
    issuer.away = outage, outage + OUTAGE_S
    while time.monotonic() < outage + OUTAGE_S + LIFE_S:
        try:
            own.begin()
            for _ in range(3):
                assert own.send("tokens", records(place, 200)) == (200, "")
                place += 200
                time.sleep(0.05)
            assert not own.commit(str(place))
        except ConnectionLostError:
            place, repeated = int(own.open() or 0), repeated + 1
    own.close()
    assert repeated <= 2
    assert 3 <= issuer.given <= 20
    assert 0 < issuer.refused <= 3 * OUTAGE_S
    assert [int(one.key) for one in read_committed(broker, "tokens")] == list(range(place))


def test_an_endpoint_that_stays_away_is_told_without_the_secret_and_later_all_goes_on(
    broker: Broker, issuer: Issuer, certificate: Path
) -> None:
    broker.create("away", 1)
    own = client(broker, issuer, certificate, "away")
    assert own.open() is None
    own.begin()
    assert own.send("away", records(0, 200)) == (200, "")
    issuer.away = time.monotonic(), float("inf")
    time.sleep(LIFE_S + 1)
    for step in (lambda: own.commit("never"), own.open):
        with pytest.raises(ConnectionLostError) as told:
            step()
        assert SECRET not in str(told.value)
    issuer.away = 0.0, 0.0
    assert own.open() is None
    own.begin()
    assert own.send("away", records(0, 200)) == (200, "")
    assert not own.commit("marker")
    own.close()
    assert [int(one.key) for one in read_committed(broker, "away")] == list(range(200))
