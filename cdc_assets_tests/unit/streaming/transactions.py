"""What must hold between the events of tables and the transaction topic."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from cdc_assets.config.settings import CaptureConfig
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of

Told = dict[str, dict[str, list[Counter[str]]]]


def _values(config: CaptureConfig, topic: str) -> Iterator[dict[str, Any]]:
    for row in rows_of_topic(config, topic):
        if isinstance(value := row["value"], dict):
            yield value


def told(config: CaptureConfig) -> Told:
    """BEGIN and END of each transaction; an END with its events by table."""
    found: Told = defaultdict(lambda: {"BEGIN": [], "END": []})
    for value in _values(config, "shop.transaction"):
        counts = Counter({one["data_collection"]: one["event_count"] for one in value["data_collections"] or ()})
        assert value["status"] == "BEGIN" or value["event_count"] == counts.total()
        found[value["id"]][value["status"]].append(counts)
    return found


def broken_transactions(config: CaptureConfig) -> list[str]:
    """Transactions of which the topics do not hold one BEGIN, one END, and the events that it counts, in a row of numbers."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    orders: dict[str, list[int]] = defaultdict(list)
    for table in state_of(config).tables:
        for value in _values(config, f"shop.{table}"):
            if block := value.get("transaction"):
                counts[block["id"]][str(table)] += 1
                orders[block["id"]].append(block["total_order"])
    ends = told(config)
    problems = []
    for name, found in sorted(counts.items()):
        if ends[name] != {"BEGIN": [Counter()], "END": [found]}:
            problems.append(f"{name}: {dict(ends[name])}, and the topics hold {dict(found)}")
        if sorted(orders[name]) != list(range(1, found.total() + 1)):
            problems.append(f"{name}: numbers {sorted(orders[name])}")
    return problems
