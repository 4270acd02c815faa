"""What commands print with `--json`: the fields that docs/command-line.md lists; fields may be added, none changes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from cdc_assets.config.property import Property
from cdc_assets.core.check_result import CheckResult
from cdc_assets.core.identifiers import TableId
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.overview import DatabaseOverview
from cdc_assets.overview.checks.check import Inspection
from cdc_assets.reconcile.progress import Pass


def print_json(document: object, *, lines: bool = False) -> None:
    """Print one JSON document on standard output; on one line if it is one of many."""
    typer.echo(json.dumps(document, ensure_ascii=False, indent=None if lines else 2))


def of_status(seen: Inspection) -> dict[str, Any]:
    """The document of `cdc-assets status`; tables by their names."""
    document = seen.report.as_json()
    for entry in [*document["tables"], *document["queue"], *filter(None, [document["last_ddl"]])]:
        entry["table"] = ".".join(entry["table"])
    checks = [
        {"check": it.check.name, "table": _text(it.subject), "result": it.verdict.word, "text": it.verdict.text}
        for it in seen.found
    ]
    return document | {"checks": checks}


def of_summary(
    capture: str,
    lake: str,
    tables: Mapping[str, str],
    counts: Mapping[str, Mapping[str, int]],
    databases: Sequence[DatabaseOverview] | None,
) -> dict[str, Any]:
    """The document of `cdc-assets summary`.

    Args:
        lake: its location.
        tables: names of tables, by topic.
        counts: number of events by operation, by topic.
        databases: how far each is complete; None if the capture knows none.
    """
    topics = [
        {"topic": topic, "table": table, "operations": dict(counts[topic]), "events": sum(counts[topic].values())}
        for topic, table in tables.items()
    ]
    known = {} if databases is None else {"databases": [_database(database) for database in databases]}
    return {"capture": capture, "lake": lake, "topics": topics} | known


def of_doctor(results: Sequence[CheckResult]) -> dict[str, Any]:
    """The document of `cdc-assets doctor`."""
    return {
        "ready": all(result.ok or not result.blocking for result in results),
        "checks": [
            {
                "check": result.check,
                "object": result.subject,
                "ok": result.ok,
                "blocking": result.blocking,
                "actual": result.actual,
                "expected": result.expected,
                "remedy": result.remedy,
            }
            for result in results
        ],
    }


def of_mirrors(states: Mapping[str, MirrorState], troubles: Mapping[str, object]) -> list[dict[str, Any]]:
    """The document of `cdc-assets mirror`; a mirror that has a problem and no state yet is listed, too."""
    return [
        {
            "topic": topic,
            "complete_to": (states[topic].lsn or None) if topic in states else None,
            "right_from": (states[topic].begin or None) if topic in states else None,
            "not_between": [list(span) for span in states[topic].spans] if topic in states else [],
            "gaps": len(states[topic].gaps) if topic in states else 0,
            "problem": str(troubles[topic]) if topic in troubles else None,
        }
        for topic in sorted({*states, *troubles})
    ]


def of_comparison(table: TableId, found: Pass) -> dict[str, Any]:
    """One entry of the document of `cdc-assets reconcile`."""
    numbers = {
        name: getattr(found, name) for name in ("rows", "differing", "absent", "removed", "asked", "waiting", "left")
    }
    return {
        "table": str(table),
        "complete_to": found.lsn,
        "ranges": len(found.ranges),
        "done": found.done,
        **numbers,
        "differences": [
            {"kind": one.kind, "key": dict(one.key), "server": dict(one.server), "mirror": dict(one.mirror)}
            for one in found.first
        ],
    }


def of_properties(rows: Sequence[Property]) -> list[dict[str, Any]]:
    """The document of `cdc-assets properties`."""
    return [
        {
            "name": row.name,
            "status": str(row.status),
            "default": row.default,
            "required": row.required,
            "meaning": row.doc,
        }
        for row in rows
    ]


def _database(database: DatabaseOverview) -> dict[str, Any]:
    return {
        "database": database.database,
        "complete_to": _text(database.complete_to),
        "lag_seconds": database.lag_s,
        "troubled": database.troubled,
    }


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)
