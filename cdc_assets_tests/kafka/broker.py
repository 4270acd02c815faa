"""Kafka's broker as one process, from Maven Central."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cdc_assets_tests.engines.servers import free_port
from cdc_assets_tests.kafka.maven import Need, fetched
from cdc_assets_tests.patience import Patience

VERSION = "4.1.0"
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
_JARS = os.environ.get("CDC_KAFKA_JARS", "")
PASSWORD = "right"
_QUIET = {"log_level": 0, "message.timeout.ms": 60000}


def jars() -> str:
    """Class path of the broker; fetched once."""
    return f"{_JARS or fetched(f'kafka-{VERSION}', Need('org.apache.kafka', 'kafka_2.13', VERSION))}/*"


class Broker:
    """A broker that lasts as long as its context.

    Args:
        folder: for its data.
        certificate: PEM of a certificate and its key, with which it also listens to users of `PASSWORD` (SASL_SSL).
        heap: memory of its Java machine.
        options: more of the broker's.
        java: options of its Java machine.
    """

    def __init__(
        self,
        folder: Path,
        certificate: Path | None = None,
        heap: str = "300m",
        options: Mapping[str, str] | None = None,
        java: Sequence[str] = (),
    ) -> None:
        self._heap, self._folder, self._port, self._controller = heap, folder, free_port(), free_port()
        self.options, self._java_options = dict(options or {}), java
        self._certificate, self.secured = certificate, f"127.0.0.1:{free_port()}" if certificate else ""
        self.servers = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def __enter__(self) -> Self:
        self.format()
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def controller(self) -> str:
        """Address of its controller."""
        return f"127.0.0.1:{self._controller}"

    @property
    def data(self) -> Path:
        """Folder of its partitions."""
        return self._folder / "data"

    def format(self) -> None:
        """Make its folder."""
        self._folder.mkdir(parents=True)
        self.configure()
        self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c").wait(300)

    def configure(self) -> None:
        """Write its options as they are now, for its next start."""
        (self._folder / "server.properties").write_text(self._properties())

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start it."""
        self._process = self._java("kafka.Kafka")

    def wait(self) -> None:
        """Wait until it answers; one that ends is started again, as by a supervisor."""
        assert self._process is not None
        patience = Patience(180)
        while True:
            try:
                self.admin.list_topics(timeout=2)
            except KafkaException:
                assert patience, (self._folder / "log").read_text()[-3000:]
                if self._process.poll() is not None:
                    self.launch()
                time.sleep(0.3)
            else:
                return

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """It answers nothing within the block."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def create(self, topic: str, partitions: int = 1, **options: str) -> None:
        """Make a topic; options with two underscores for each dot."""
        config = {name.replace("__", "."): text for name, text in options.items()}
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
        made[topic].result(60)

    def write(self, topic: str, messages: Sequence[tuple[int, Any, Any]], **options: Any) -> None:
        """Send partition, key and value of messages, and wait until they are there."""
        producer = Producer({"bootstrap.servers": self.servers} | _QUIET | options)
        for partition, key, value in messages:
            producer.produce(topic, value, key, partition, headers=[("h", b"1")])
            producer.poll(0)
        assert producer.flush(60) == 0

    @contextmanager
    def transaction(self, name: str, topic: str, messages: Sequence[tuple[int, Any, Any]]) -> Iterator[Producer]:
        """Messages of a transaction that the caller ends."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": name, "log_level": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition, key, value in messages:
            producer.produce(topic, value, key, partition)
        assert producer.flush(60) == 0
        yield producer

    def _java(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            java = ["java", f"-Xmx{self._heap}", *self._java_options, "-cp", jars()]
            whole = [*java, *command, str(self._folder / "server.properties")]
            return subprocess.Popen(whole, stdout=log, stderr=log)

    def _properties(self) -> str:
        listeners = f"PLAINTEXT://{self.servers},CONTROLLER://{self.controller}"
        listeners += f",SECURED://{self.secured}" if self.secured else ""
        security = "org.apache.kafka.common.security"
        secured = [
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self._certificate}",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
            f'plain.sasl.jaas.config={security}.plain.PlainLoginModule required user_cdc="{PASSWORD}";',
            f"scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;",
        ]
        return "\n".join(
            [
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@{self.controller}",
                f"listeners={listeners}",
                f"advertised.listeners=PLAINTEXT://{self.servers}"
                + (f",SECURED://{self.secured}" if self.secured else ""),
                "controller.listener.names=CONTROLLER",
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
                *(f"listener.name.secured.{line}" for line in secured if self.secured),
                f"log.dirs={self.data}",
                "offsets.topic.replication.factor=1",
                "offsets.topic.num.partitions=1",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.num.partitions=1",
                "transaction.state.log.min.isr=1",
                "group.initial.rebalance.delay.ms=0",
                "log.cleaner.backoff.ms=200",
                "log.retention.check.interval.ms=500",
                "auto.create.topics.enable=false",
                *(f"{name}={text}" for name, text in self.options.items()),
            ]
        )
