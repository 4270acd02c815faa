"""Topics of which a partition takes no records now: it has no leader, or too few of its replicas are in sync.

Kafka ends a transaction only once each partition with a record of it can be written, and begins no other one of the same producer before.
So a record for such a partition would hold up all topics, and nobody could help that: it is not sent. A partition that becomes so while a
transaction has records for it does hold up all of them until it can be written again, or its topic is deleted.
"""

from collections.abc import Mapping
from typing import Any


def offline_topics(found: Mapping[str, Any], in_sync: Mapping[str, int]) -> dict[str, str]:
    """Topics of which a partition takes no records now, with the reason.

    Args:
        found: what the brokers report of topics.
        in_sync: how many replicas of topics are to be in sync (`min.insync.replicas`), of those that count here.
    """
    reasons = ((name, _reason(found[name], least)) for name, least in in_sync.items() if name in found)
    return {name: reason for name, reason in reasons if reason}


def _reason(topic: Any, least: int) -> str:
    """Why no record can be written to one of the topic's partitions; empty if each takes some."""
    for number, partition in sorted(topic.partitions.items()):
        if partition.leader < 0:
            return f"its partition {number} has no leader: see which of its brokers are away"
        needed = min(least, len(partition.replicas))  # as brokers have it
        if len(partition.isrs) < needed:
            return (
                f"its partition {number} has {len(partition.isrs)} replicas in sync, and needs {needed} (min.insync.replicas): see "
                "which of its brokers are away"
            )
    return ""
