"""A real schema registry as one process, from Maven Central: Apicurio's, which speaks Confluent's interface."""

import json
import os
import subprocess
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self

from cdc_assets_tests.engines.servers import free_port
from cdc_assets_tests.kafka.maven import Need, fetched

VERSION = "2.6.13.Final"
"""The last that runs on Java 17."""
_COMPATIBLE = "/apis/ccompat/v7"


class Apicurio:
    """A registry that lasts as long as its context; started again, it has the schemas that it had.

    Args:
        folder: for its schemas and its log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.address = f"http://127.0.0.1:{self._port}{_COMPATIBLE}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        need = Need("io.apicurio", "apicurio-registry-app", VERSION, "all")
        [jar] = fetched(f"apicurio-{VERSION}", need).glob("*-runner.jar")
        options = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._port}"]
        options.append("-Dquarkus.datasource.jdbc.initial-size=2")
        database = f"jdbc:h2:file:{self._folder / 'registry'};WRITE_DELAY=0"
        log = self._folder / "registry.log"
        with log.open("ab") as out:
            command = ["java", "-Xmx400m", *options, "-jar", str(jar)]
            environment = os.environ | {"REGISTRY_DATASOURCE_URL": database}
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self._folder, env=environment)
        deadline = time.monotonic() + 180
        while self.asked("/subjects") is None:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            assert self._process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.5)

    def kill(self) -> None:
        """End it at once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def asked(self, path: str, method: str = "GET", document: Any = None) -> str | None:
        """What it answers; None if it does not, or refuses."""
        asked = HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            body = None if document is None else json.dumps(document)
            asked.request(method, _COMPATIBLE + path, body, {"Content-Type": "application/json"})
            answer = asked.getresponse()
            text = answer.read().decode()
        except (OSError, HTTPException):
            return None
        finally:
            asked.close()
        return text if answer.status == 200 else None

    def schemas(self, subject: str) -> list[tuple[int, str]]:
        """Number and text of each version of a subject."""
        versions = self.asked(f"/subjects/{subject}/versions")
        assert versions is not None, subject
        answers = [self.asked(f"/subjects/{subject}/versions/{number}") for number in json.loads(versions)]
        found = [json.loads(answer or "{}") for answer in answers]
        return [(one["id"], one["schema"]) for one in found]
