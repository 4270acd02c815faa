"""Settings of signals and incremental snapshots."""

from dataclasses import dataclass, field
from typing import Literal

from cdc_assets.core.identifiers import TableId


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """Settings of signals and of incremental snapshots (spec debezium-sqlserver §8, §9).

    Args:
        collections: `signal.data.collection`: the signal tables, one per database at most.
        channels: `signal.enabled.channels`: `source`, `file`, `kafka`.
        file: `signal.file`: path of a file with one JSON object per line; renamed when it is read, then removed.
        poll_interval_s: `signal.poll.interval.ms` in seconds: interval at which channels other than `source` are
            polled.
        chunk_rows: `incremental.snapshot.chunk.size`.
        recompile: `incremental.snapshot.option.recompile`.
        watermarking: `incremental.snapshot.watermarking.strategy`.
        kafka_topic: `signal.kafka.topic`; `<prefix>-signal` if empty.
        kafka_servers: `signal.kafka.bootstrap.servers`.
        kafka_group: `signal.kafka.groupId`.
        kafka_timeout_s: `signal.kafka.poll.timeout.ms` in seconds.
        kafka_consumer: options of the client by name; may hold secrets, never printed.
    """

    collections: tuple[TableId, ...] = ()
    channels: tuple[str, ...] = ("source",)
    file: str = "file-signals.txt"
    poll_interval_s: float = 5.0
    chunk_rows: int = 1024
    recompile: bool = False
    watermarking: Literal["insert_insert", "insert_delete"] = "insert_insert"
    kafka_topic: str = ""
    kafka_servers: str = ""
    kafka_group: str = "kafka-signal"
    kafka_timeout_s: float = 0.1
    kafka_consumer: tuple[tuple[str, str], ...] = field(default=(), repr=False)
