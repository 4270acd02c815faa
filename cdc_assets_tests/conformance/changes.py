"""Schema change events among the records of both."""

from typing import Any

from cdc_assets_tests.conformance.compare import Record

PLACES = {"ts_ms", "ts_us", "ts_ns", "change_lsn", "commit_lsn", "event_serial_no", "schema", "table"}


def schemas_explained(path: str, theirs: Any, ours: Any) -> str | None:
    """Differences of schema change events listed in docs/differences-from-debezium.md."""
    if path.startswith("payload.source.") and path.rpartition(".")[2] in PLACES:
        return "source of a schema change event: the last data event before it / the place from which it holds"
    return None


def is_change(record: Record) -> bool:
    """Whether it is a schema change event."""
    return "tableChanges" in ((record["value"] or {}).get("payload") or {})


def by_table(records: list[Record]) -> list[Record]:
    """Schema change events with their table as the topic: tables have no order that two readers must share."""
    changes = [record for record in records if is_change(record)]
    return [record | {"topic": record["value"]["payload"]["tableChanges"][0]["id"]} for record in changes]
