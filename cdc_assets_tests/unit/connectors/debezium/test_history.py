"""What the engine's process reads of the connector's schema history."""

import json

from cdc_assets.connectors.debezium.child import whole_records

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"
"""Each ends a line for Python, and none for the file; the first three are as they are in JSON."""


def test_only_a_line_feed_ends_a_record() -> None:
    ddl = f"CREATE TABLE t (a INT COMMENT 'x{SEPARATORS}y')"
    records = [json.dumps({"ddl": ddl, "ts_ms": number}, ensure_ascii=False) for number in range(2)]
    written = "".join(record + "\n" for record in records).encode()
    assert whole_records(written) == (records, len(written))
    assert [json.loads(record)["ddl"] for record in whole_records(written)[0]] == [ddl, ddl]


def test_a_record_that_is_being_written_waits() -> None:
    assert whole_records(b'{"a": 1}\n{"b"') == (['{"a": 1}'], 9)
    assert whole_records(b'{"a"') == ([], 0)
    assert whole_records(b"\n") == ([], 1)
