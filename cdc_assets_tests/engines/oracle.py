"""Events of Oracle's connector, made by its own classes without a database: `python -m cdc_assets_tests.engines.oracle FOLDER`.

Statements go through its DDL parser into table schemas; redo SQL, as LogMiner gives it, through its DML parser, value
converters and record emitter; the source block comes from its offset context. What comes out is written twice: as the
engine's process sends it (`Encoder.java`), and as Kafka Connect's JSON converter writes it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from cdc_assets.connectors.debezium.child import compiled, jars

CREATE = """CREATE TABLE DEBEZIUM.CUSTOMERS (
  ID NUMBER(9,0) NOT NULL, NAME VARCHAR2(255) NOT NULL, EMAIL NVARCHAR2(100), C_CODE CHAR(4),
  C_TINY NUMBER(2,0), C_SMALL NUMBER(4,0), C_BIG NUMBER(18,0), C_HUGE NUMBER(38,0), C_PRICE NUMBER(10,2), C_ROUNDED NUMBER(5,-2),
  ANY_NUMBER NUMBER, C_FLAG NUMBER(1,0), C_RATIO BINARY_DOUBLE, SHARE_OF BINARY_FLOAT, C_FLT FLOAT(10),
  C_BORN DATE, C_SEEN TIMESTAMP(6), C_SEEN_NANO TIMESTAMP(9), C_SEEN_MILLI TIMESTAMP(3), C_SEEN_TZ TIMESTAMP(6) WITH TIME ZONE,
  C_YM INTERVAL YEAR(2) TO MONTH, C_DS INTERVAL DAY(3) TO SECOND(6),
  C_NOTES CLOB, C_NNOTES NCLOB, C_PICTURE BLOB, C_BYTES RAW(16), CONSTRAINT PK PRIMARY KEY (ID))"""
INSERT = (
    """insert into "DEBEZIUM"."CUSTOMERS"("ID","NAME","EMAIL","C_CODE","C_TINY","C_SMALL","C_BIG","C_HUGE","C_PRICE","C_ROUNDED","ANY_NUMBER","""
    """"C_FLAG","C_RATIO","SHARE_OF","C_FLT","C_BORN","C_SEEN","C_SEEN_NANO","C_SEEN_MILLI","C_SEEN_TZ","C_YM","C_DS","C_BYTES") values """
    """('1004','Anne ''A'' Kretchmar','annek@noanswer.org','ab','-99','9999','999999999999999999',"""
    """'12345678901234567890123456789012345678','-12345678.90','12300','3.14159265358979','1','1.5E+000','-2.5E+000','7.25',"""
    """TO_DATE('2018-03-27 00:00:00', 'YYYY-MM-DD HH24:MI:SS'),TO_TIMESTAMP('2018-03-27 12:34:56.00789'),"""
    """TO_TIMESTAMP('2018-03-27 12:34:56.007890125'),TO_TIMESTAMP('2018-03-27 12:34:56.125'),"""
    """TO_TIMESTAMP_TZ('2018-03-27 01:34:56.00789 -11:00'),TO_YMINTERVAL('-03-06'),TO_DSINTERVAL('-001 02:03:04.56'),"""
    """HEXTORAW('00ff10'))"""
)
WHERE = """where "ID" = '1004' and "NAME" = 'Anne' and "C_NOTES" is null"""
STEPS = [
    ("CREATE", INSERT),
    ("UPDATE", f"""update "DEBEZIUM"."CUSTOMERS" set "NAME" = 'Anne Marie', "ANY_NUMBER" = '1.10' {WHERE}"""),
    ("UPDATE", f"""update "DEBEZIUM"."CUSTOMERS" set "ID" = '1005' {WHERE}"""),
    ("DELETE", """delete from "DEBEZIUM"."CUSTOMERS" where "ID" = '1005' and "NAME" = 'Anne'"""),
    ("TRUNCATE", ""),
]


def _java(name: str) -> Any:
    import jpype

    return jpype.JClass(name)


_UNCONNECTED = """
public class Unconnected extends io.debezium.connector.oracle.OracleConnection {
    public Unconnected() { super((io.debezium.connector.oracle.OracleConnectorConfig) null, false); }
    public oracle.sql.CharacterSet getNationalCharacterSet() {
        return oracle.sql.CharacterSet.make(oracle.sql.CharacterSet.AL16UTF16_CHARSET);
    }
    public oracle.sql.CharacterSet getDatabaseCharacterSet() {
        return oracle.sql.CharacterSet.make(oracle.sql.CharacterSet.AL32UTF8_CHARSET);
    }
}
"""


def _unconnected() -> Any:
    """A connection without a server that only knows its character sets; its constructor, which asks one, never runs."""
    import jpype

    compiler = _java("org.codehaus.janino.SimpleCompiler")()
    compiler.cook(_UNCONNECTED)
    field = _java("java.lang.Class").forName("sun.misc.Unsafe").getDeclaredField("theUnsafe")
    field.setAccessible(True)
    made = field.get(None).allocateInstance(compiler.getClassLoader().loadClass("Unconnected"))
    return jpype.JObject(made, "io.debezium.connector.oracle.OracleConnection")


class Oracle:
    """The connector's classes, set up as its task does it, but for a connection."""

    def __init__(self, folder: Path, **more: str) -> None:
        base = "io.debezium.connector.oracle"
        given = {
            "topic.prefix": "server1",
            "name": "server1",
            "database.dbname": "ORCLCDB",
            "database.pdb.name": "ORCLPDB1",
            "database.hostname": "localhost",
            "database.user": "c##dbzuser",
            "include.schema.changes": "false",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(folder / "history"),
        }
        made = _java("io.debezium.config.Configuration").create()
        for name, text in (given | more).items():
            made = made.with_(name, text)
        built = made.build()
        self.config = _java(f"{base}.OracleConnectorConfig")(built)
        context = _java(f"{base}.OracleTaskContext")(built, self.config)
        connection = _unconnected()
        self.converters = _java(f"{base}.OracleValueConverters")(self.config, connection)
        defaults = _java(f"{base}.OracleDefaultValueConverter")(self.converters, connection)
        self.naming = self.config.getTopicNamingStrategy(
            _java("io.debezium.config.CommonConnectorConfig").TOPIC_NAMING_STRATEGY
        )
        sensitivity = _java(f"{base}.StreamingAdapter$TableNameCaseSensitivity").INSENSITIVE
        adjuster = self.config.schemaNameAdjuster()
        registry = _java("io.debezium.relational.CustomConverterRegistry")(_java("java.util.ArrayList")())
        self.schema = _java(f"{base}.OracleDatabaseSchema")(
            self.config, self.converters, defaults, adjuster, self.naming, sensitivity, False, registry, context
        )
        builder = _java(f"{base}.OracleOffsetContext").create().logicalName(self.config)
        scn = _java(f"{base}.Scn")
        self.offset = (
            builder.scn(scn.valueOf("2122184"))
            .transactionContext(_java("io.debezium.pipeline.txmetadata.TransactionContext")())
            .incrementalSnapshotContext(
                _java("io.debezium.pipeline.source.snapshot.incremental.SignalBasedIncrementalSnapshotContext")(False)
            )
            .build()
        )
        self.partition = _java(f"{base}.OraclePartition")("server1", "ORCLPDB1")
        self.base, self.scn = base, scn

    def table(self, statement: str) -> Any:
        """What the DDL parser makes of a CREATE TABLE."""
        parser = self.schema.getDdlParser()
        parser.setCurrentDatabase("ORCLPDB1")
        parser.setCurrentSchema("DEBEZIUM")
        tables = self.schema.getTables()
        parser.parse(statement, tables)
        [table_id] = list(tables.tableIds())
        table = tables.forTable(table_id)
        register = self.schema.getClass().getDeclaredMethod(
            "buildAndRegisterSchema", _java("io.debezium.relational.Table").class_
        )
        register.setAccessible(True)
        register.invoke(self.schema, table)
        return table

    def records(self, table: Any, kind: str, redo: str, number: int) -> list[Any]:
        """The source records that the connector makes of one statement in the redo log."""
        import jpype

        operation = _java("io.debezium.data.Envelope$Operation").valueOf(kind)
        parser = _java(f"{self.base}.logminer.parser.LogMinerDmlParser")(self.config)
        entry = parser.parse(redo, table) if redo else None
        moment = _java("java.time.Instant").ofEpochMilli(1520085154000 + number)
        offset = self.offset
        offset.setScn(self.scn.valueOf(str(2122185 + number)))
        offset.setEventScn(self.scn.valueOf(str(2122185 + number)))
        offset.setEventCommitScn(self.scn.valueOf("2122199"))
        offset.setTransactionId("06001c0027030000")
        offset.setTransactionSequence(_java("java.lang.Long").valueOf(number))
        offset.setRsId("001234.00012345.0124")
        offset.setSsn(number)
        offset.setRedoThread(_java("java.lang.Integer").valueOf(1))
        offset.setUserName("DEBEZIUM")
        offset.setRowId("AAASgjAAMAAAACnAAA")
        offset.setRedoSql(redo or None)
        offset.setSourceTime(moment)
        offset.tableEvent(table.id(), moment)
        values = (None, None) if entry is None else (entry.getOldValues(), entry.getNewValues())
        clock = _java("io.debezium.util.Clock").system()
        emitter = _java(f"{self.base}.logminer.LogMinerChangeRecordEmitter")(
            self.config, self.partition, offset, operation, *values, table, self.schema, clock
        )
        found: list[Any] = []
        own = self

        @jpype.JImplements("io.debezium.pipeline.spi.ChangeRecordEmitter$Receiver")
        class Receiver:
            @jpype.JOverride
            def changeRecord(self, partition: Any, schema: Any, operation: Any, *parts: Any) -> None:  # noqa: N802 - the interface's name
                found.append(own.record(table, schema, *parts))

            @jpype.JOverride
            def unchangedEventSkipped(self, partition: Any) -> None:  # noqa: N802 - the interface's name
                raise AssertionError("skipped")

        emitter.emitChangeRecords(self.schema.schemaFor(table.id()), Receiver())
        return found

    def record(self, table: Any, schema: Any, key: Any, value: Any, offset: Any, headers: Any) -> Any:
        """As the connector's dispatcher makes it."""
        envelope = schema.getEnvelopeSchema().schema()
        return _java("org.apache.kafka.connect.source.SourceRecord")(
            self.partition.getSourcePartition(),
            offset.getOffset(),
            self.naming.dataChangeTopic(table.id()),
            None,
            None if key is None else schema.keySchema(),
            key,
            None if value is None else envelope,
            value,
            None,
            headers,
        )


def write(folder: Path, records: list[Any]) -> None:
    """`chunk.json` and `chunk.bin` as the engine's process sends them; `events.json` as Connect's JSON converter writes."""
    import jpype

    @jpype.JImplements("io.debezium.engine.RecordChangeEvent")
    class Event:
        def __init__(self, record: Any) -> None:
            self._record = record

        @jpype.JOverride
        def record(self) -> Any:
            return self._record

    events = _java("java.util.ArrayList")()
    for record in records:
        events.add(Event(record))
    encoder = compiled("Column", "Encoder")()
    (folder / "chunk.json").write_bytes(bytes(encoder.encode(events, True)))
    (folder / "chunk.bin").write_bytes(bytes(encoder.body()))
    converter = _java("org.apache.kafka.connect.json.JsonConverter")()
    converter.configure(_java("java.util.HashMap")(), False)

    def text(topic: str, schema: Any, value: Any) -> str:
        return "null" if value is None else bytes(converter.fromConnectData(topic, schema, value)).decode()

    with (folder / "events.json").open("w") as file:
        for record in records:
            topic = str(record.topic())
            headers = {str(h.key()): json.loads(text(topic, h.schema(), h.value())) for h in record.headers()}
            key, value = (
                text(topic, record.keySchema(), record.key()),
                text(topic, record.valueSchema(), record.value()),
            )
            file.write(f'{{"topic":"{topic}","key":{key},"value":{value},"headers":{json.dumps(headers)}}}\n')


def main(folder: Path) -> None:
    """Write the events of a capture without large objects, and of one with them, each into a folder."""
    import jpype

    jpype.startJVM("-Xmx512m", "-Dslf4j.internal.verbosity=ERROR", classpath=jars(), convertStrings=True)
    for name, options in (
        ("plain", {}),
        ("large-objects", {"lob.enabled": "true"}),
        ("connect", {"time.precision.mode": "connect"}),
    ):
        (folder / name).mkdir(parents=True)
        oracle = Oracle(folder / name, **options)
        table = oracle.table(CREATE)
        steps = [step for step in STEPS if name != "large-objects" or 'set "ID"' not in step[1]]
        records = [record for number, step in enumerate(steps) for record in oracle.records(table, *step, number)]
        write(folder / name, records)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
