"""A schema registry in this process, over HTTP."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cdc_assets.config.kafka import kafka_settings
from cdc_assets.config.settings.kafka import AVRO, KafkaSettings


class Registry:
    """Numbers schemas in their order; lasts as long as its context.

    Args:
        refused: subjects of which no schema is taken.
        away: whether it answers that it cannot answer.
    """

    def __init__(self, *refused: str) -> None:
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.refused, self.away = set(refused), False
        self.refusal = 409
        """Status with which they are refused."""
        self.credentials, self.elsewhere = "", ""
        self.asked: list[str] = []
        self.connected = 0
        """Connections that are open."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # connections are used again
            disable_nagle_algorithm = True  # an answer's body would wait until its head is acknowledged

            def setup(self) -> None:
                super().setup()
                registry.connected += 1

            def finish(self) -> None:
                super().finish()
                registry.connected -= 1

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/subjects":
                    self._answer((200, sorted(registry.subjects)))
                else:
                    self._answer(registry.schema(int(path.rpartition("/")[2])))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(registry.register(self.path, json.loads(body)["schema"]))

            def _answer(self, answer: tuple[int, Any]) -> None:
                registry.asked.append(f"{self.command} {self.path}")
                if registry.credentials and self.headers["Authorization"] != registry.credentials:
                    answer = 401, {"message": "who are you"}
                status, document = (503, {"message": "away"}) if registry.away else answer
                data = json.dumps(document).encode()
                self.send_response(302 if registry.elsewhere else status)
                if registry.elsewhere:
                    self.send_header("Location", registry.elsewhere + self.path)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def schema(self, number: int) -> tuple[int, Any]:
        """The answer for a number."""
        if not 0 < number <= len(self.schemas):
            return 404, {"error_code": 40403, "message": "no such schema"}
        return 200, {"schema": self.schemas[number - 1]}

    def register(self, path: str, schema: str) -> tuple[int, Any]:
        """The answer for a schema of a subject."""
        _, _, subject, *versions = path.partition("?")[0].split("/")
        if subject in self.refused:
            return self.refusal, {"error_code": self.refusal, "message": "not compatible"}
        if not versions and schema not in self.schemas:
            return 404, {"error_code": 40403, "message": "no such schema"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        known = self.subjects.setdefault(subject, [])
        known += [] if number in known else [number]
        return 200, {"id": number}


def avro_of(registry: Registry, **options: str) -> KafkaSettings:
    """Keys and values in Avro."""
    texts = {f"{side}.converter": AVRO for side in ("key", "value")}
    texts |= dict.fromkeys(
        ("key.converter.schema.registry.url", "value.converter.schema.registry.url"), registry.address
    )
    found = kafka_settings({}, texts | {name.replace("__", "."): text for name, text in options.items()}, "debezium")
    assert found.problem is None
    return found
