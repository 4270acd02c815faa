"""Settings of what is written to Kafka."""

from dataclasses import dataclass, field

JSON = "org.apache.kafka.connect.json.JsonConverter"
SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
"""Connect's default for headers: texts as they are."""


@dataclass(frozen=True, slots=True)
class TopicRule:
    """How topics are made.

    Args:
        include: regexes of the topics; empty for all.
        exclude: regexes of topics that the rule is not for.
        partitions: number of partitions; -1 leaves it to the broker.
        replication: number of replicas; -1 leaves it to the broker.
        options: further options of a topic, such as `cleanup.policy`.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    partitions: int = -1
    replication: int = -1
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Where and how topics are written to Kafka.

    Args:
        servers: `bootstrap.servers`; empty if nothing is written to Kafka.
        enabled: whether runs of Dagster publish.
        key_schema: whether JSON keys contain their schema; Connect's default is true.
        value_schema: the same for values.
        headers: class of the header converter.
        header_schema: whether JSON headers contain their schema.
        producer: options of the client by name; may hold secrets, never printed.
        rules: how topics are made; the first that fits, and the last fits all.
        creates: whether topics that are missing are made.
        transaction_rows: events of one Kafka transaction, after which it is committed.
        problem: what keeps these settings from being used; empty if nothing does.
    """

    servers: str = ""
    enabled: bool = False
    key_schema: bool = True
    value_schema: bool = True
    headers: str = SIMPLE
    header_schema: bool = True
    producer: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    rules: tuple[TopicRule, ...] = (TopicRule(),)
    creates: bool = True
    transaction_rows: int = 20_000
    problem: tuple[str, str, str] | None = None
