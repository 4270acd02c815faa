"""Settings of what is written to Kafka."""

from dataclasses import dataclass, field

from cdc_assets.config.settings.transforms import Step

JSON = "org.apache.kafka.connect.json.JsonConverter"
SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
"""Connect's default for headers: texts as they are."""


AVRO = "io.confluent.connect.avro.AvroConverter"


@dataclass(frozen=True, slots=True)
class ConverterSettings:
    """How keys or values are written.

    Args:
        format: `json` or `avro`.
        schema: whether JSON contains its schema; Connect's default is true.
        defaults: whether a field's default replaces null.
        registry: addresses of the schema registry.
        credentials: `user:password` for it.
        registers: whether schemas are added to the registry.
        numeric: whether decimals are numbers in JSON; else base64.
    """

    format: str = "json"
    schema: bool = True
    defaults: bool = True
    registry: str = ""
    credentials: str = field(default="", repr=False)
    registers: bool = True
    numeric: bool = False


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
        key: how keys are written.
        value: how values are written.
        flat: whether values of tables are flat FlinkX records.
        paved: `flinkx.paving`.
        split: `flinkx.split`.
        headers: class of the header converter.
        header_schema: whether JSON headers contain their schema.
        producer: options of the client by name; may hold secrets, never printed.
        rules: how topics are made; the first that fits, and the last fits all.
        creates: whether topics that are missing are made.
        transaction_rows: events of one Kafka transaction, after which it is committed.
        late_s: seconds for which events may wait before that is a trouble.
        transforms: the chain of transforms.
        problem: what keeps these settings from being used; empty if nothing does.
    """

    servers: str = ""
    enabled: bool = False
    key: ConverterSettings = ConverterSettings()
    value: ConverterSettings = ConverterSettings()
    flat: bool = False
    paved: bool = True
    split: bool = False
    headers: str = SIMPLE
    header_schema: bool = True
    producer: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    rules: tuple[TopicRule, ...] = (TopicRule(),)
    creates: bool = True
    transaction_rows: int = 200_000
    late_s: float = 600.0
    transforms: tuple[Step, ...] = ()
    problem: tuple[str, str, str] | None = None
