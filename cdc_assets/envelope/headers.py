"""Headers of events.

Data events, tombstones and schema changes carry the context headers; transaction and heartbeat events do not (measured,
debezium-live §4 no. 13). Events of a changed message key carry the other key in front of them: the delete and its
tombstone `__debezium.newkey`, the create `__debezium.oldkey`. The lake's headers are texts, so that key is JSON.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config.settings import EventSettings
from cdc_assets.envelope.constants import constant_headers
from cdc_assets.envelope.json_text import joined, struct_pieces
from cdc_assets.envelope.layout import Layout
from cdc_assets.envelope.plan import ConnectorIdentity, EventPlan
from cdc_assets.kernels import Numbers

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"

_CONTEXT = "__debezium.context."


def context_pairs(settings: EventSettings, connector: ConnectorIdentity) -> tuple[tuple[str, str], ...]:
    """The context headers (measured: in this order, all four); none in the 2.3 form."""
    if not settings.extended_headers or settings.event_version != "3":
        return ()
    return (
        (_CONTEXT + "connectorLogicalName", settings.topic_prefix),
        (_CONTEXT + "taskId", connector.task_id),
        (_CONTEXT + "connectorName", connector.name),
        (_CONTEXT + "runId", connector.run_id),
    )


def context_headers(plan: EventPlan, rows: int) -> pa.Array:
    """The headers column of events that carry the context headers alone."""
    return constant_headers(context_pairs(plan.settings, plan.connector), rows)


def key_change_headers(plan: EventPlan, key: pa.Array, layout: Layout) -> pa.Array | None:
    """The headers column if some event comes from a changed message key, else None."""
    if not layout.key_change.any():
        return None
    created = layout.letter == ord("c")
    other = np.where(created, layout.last - 1, layout.last)[layout.key_change]
    fields = list(plan.topic_schema.field("key").type)
    texts = joined(struct_pieces(fields, key.take(pa.array(other)), defaults=True), len(other))
    first = pc.if_else(pa.array(created[layout.key_change]), OLD_KEY, NEW_KEY)
    return _interleaved(layout.key_change, first, texts, context_pairs(plan.settings, plan.connector))


def _interleaved(chosen: Numbers, first: pa.Array, texts: pa.Array, pairs: tuple[tuple[str, str], ...]) -> pa.Array:
    """The same headers in every row; chosen rows have an additional individual header in front."""
    offsets = np.zeros(len(chosen) + 1, dtype=np.int32)
    np.cumsum(chosen + len(pairs), out=offsets[1:])
    starts = offsets[:-1][chosen]
    source = np.empty(offsets[-1], dtype=np.int64)
    common = np.ones(offsets[-1], dtype=bool)
    common[starts] = False
    source[common] = np.tile(np.arange(len(pairs)), len(chosen))
    source[starts] = len(pairs) + np.arange(len(starts))
    names = pa.concat_arrays([pa.array([name for name, _ in pairs], pa.string()), first]).take(pa.array(source))
    values = pa.concat_arrays([pa.array([value for _, value in pairs], pa.string()), texts]).take(pa.array(source))
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)
