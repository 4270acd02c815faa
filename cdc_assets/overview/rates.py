"""Events per second, from the newest rows of the manifest: each completed window or round has its time and number of events."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cdc_assets.overview.report import Rates

PERIOD = timedelta(seconds=60)
"""Interval of which rates are the mean."""
_MIN_S = 1.0


def rates_of(rows: Sequence[Mapping[str, Any]], at: datetime, period: timedelta) -> Rates:
    """The mean over a period before `at`; over a shorter one if the manifest is younger.

    Args:
        rows: rows of the manifest in order.
    """
    recent = (_events(row) for row in rows if row["at"] > at - period)
    return mean_of(recent, rows[0]["at"] if rows else at, at, period)


def mean_of(commits: Iterable[Mapping[str, int]], begun: datetime, at: datetime, period: timedelta) -> Rates:
    """The mean over a period before `at`; over a shorter one if the record is younger.

    Args:
        commits: events by operation of what was committed in the period.
        begun: when the record begins.
    """
    total: Counter[str] = Counter()
    for commit in commits:
        total.update(commit)
    seconds = max(_MIN_S, min(period, at - begun).total_seconds())
    return Rates(seconds, {op: count / seconds for op, count in sorted(total.items())})


def _events(row: Mapping[str, Any]) -> Counter[str]:
    """Events by operation that one row reports as committed."""
    if row["event"] == "complete" and row["kind"] == "snapshot":
        return Counter(r=row["rows"] or 0)
    if row["event"] not in ("complete", "signals"):
        return Counter()
    detail = json.loads(row["detail"])
    found: Counter[str] = Counter()
    if row["event"] == "complete":
        for counts in detail.get("operations", {}).values():
            found.update(counts)
    for state in detail.get("states", {}).values():  # a round of an incremental snapshot, recorded before its commit
        found.update(r=sum(file["rows"] for file in (state.get("reads") or {}).get("files", ())))
    return +found
