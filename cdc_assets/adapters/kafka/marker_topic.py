"""Whether a topic can hold markers, through librdkafka (extra `kafka`).

Where the publisher continues is read from the newest marker and from nothing else. So it must never be removed, which only compaction promises,
and there must be one newest, which only one partition has.
"""

from typing import Any

from cdc_assets.adapters.kafka.rights import NOT_AUTHORIZED
from cdc_assets.adapters.kafka.waits import outcome, repeated

_POLICY = "cleanup.policy"


def unfit(library: Any, admin: Any, topic: str, limit_s: float) -> str:
    """Why markers in a topic may be lost or confused, with the next step; empty if it is fit, or does not exist.

    Args:
        limit_s: time limit of each request in seconds.

    Raises:
        KafkaException: the broker is away.
    """
    found = repeated(library, lambda step_s: admin.list_topics(timeout=step_s), limit_s).topics.get(topic)
    if found is None:
        return ""
    if len(found.partitions) > 1:
        return (
            f"The topic of markers {topic} has {len(found.partitions)} partitions, expected one: the newest marker could not be "
            f"recognised. Next: kafka-topics --delete --topic {topic}, then cdc-assets publish --resume, which creates it again"
        )
    policy = _policy(library, admin, topic, limit_s)
    if policy in (None, "compact"):
        return ""
    return (
        f"The topic of markers {topic} has {_POLICY}={policy}, expected compact: the newest marker would be removed after a while, and all "
        f"topics published a second time. Next: kafka-configs --alter --topic {topic} --add-config {_POLICY}=compact"
    )


def _policy(library: Any, admin: Any, topic: str, limit_s: float) -> str | None:
    """How its records are removed; None if the user may not ask."""
    kind = library.admin.ConfigResource
    asked = admin.describe_configs([kind(kind.Type.TOPIC, topic)], request_timeout=limit_s)
    try:
        (found,) = [outcome(future) for future in asked.values()]
    except library.KafkaException as error:
        if error.args[0].code() in (*NOT_AUTHORIZED, library.KafkaError.UNKNOWN_TOPIC_OR_PART):
            return None
        raise
    return str(found[_POLICY].value) if _POLICY in found else None
