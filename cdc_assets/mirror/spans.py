"""LSNs at which no events make a mirror right: from the watermark of a snapshot until what was read is behind.

READs carry the watermark at which their snapshot began, and each row is as it was when it was read (`ledger.readings`). So events up to
an LSN in between make rows of different moments, and what they say of that time is true of none. A span is half-open: from the
LSN of the READs up to, and without, the one from which on everything is right again; an empty end is not known yet.

*A mirror steps over spans*: it ends no step inside, and takes what lies in one as if all of it had happened at its end (`placed`). So none of
its versions begins or ends inside, and what it said of the LSN before, which may be the very one of the READs, stays true.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from cdc_assets.core.lsn import ZERO_LSN, Lsn

Span = tuple[str, str]
"""LSNs from the first on that are less than the second; an empty second one is not known yet."""

_KEEP = 100
"""Number of spans that a mirror's state tells apart; of more the oldest two become one."""


def before(lsn: str) -> str:
    """The LSN right before another one."""
    value = int(Lsn.parse(lsn))
    return str(Lsn.from_int(value - 1)) if value else lsn


def span_of(lsn: str, spans: Iterable[Span]) -> Span | None:
    """The span in which an LSN lies; None if in none."""
    return next(((low, high) for low, high in spans if low <= lsn and (not high or lsn < high)), None)


def outside(lsn: str, spans: Sequence[Span]) -> str:
    """The greatest LSN up to another one that lies in no span; empty if there is none."""
    while lsn and (found := span_of(lsn, spans)) is not None:
        lsn = "" if found[0] == str(ZERO_LSN) else before(found[0])
    return lsn


def right_from(lsn: str, spans: Sequence[Span]) -> str | None:
    """The least LSN from another one on that lies in no span; None if that is not known yet."""
    while (found := span_of(lsn, spans)) is not None:
        if not found[1]:
            return None
        lsn = found[1]
    return lsn


def proof_from(lsn: str, spans: Sequence[Span]) -> str:
    """The least LSN of rows that were there after another LSN for sure: after the end of spans that began before it, since all
    that happened in them is at their end."""
    end = right_from(before(lsn), spans)
    return lsn if end is None or end < lsn else str(Lsn.parse(end).next())


def kept(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans that have ended, to be kept for readers."""
    if len(spans) <= _KEEP:
        return tuple(spans)
    oldest = spans[: len(spans) - _KEEP + 1]
    joined = (min(low for low, _ in oldest), max(high for _, high in oldest))
    return (joined, *spans[len(spans) - _KEEP + 1 :])


def placed(lsns: pa.Array, spans: Sequence[Span]) -> pa.Array:
    """Commit LSNs as a dictionary array, those inside of a span as its end."""
    known = lsns.dictionary.to_pylist()
    moved = [right_from(lsn, spans) for lsn in known]
    if moved == known:
        return lsns
    texts = {lsn: number for number, lsn in enumerate(dict.fromkeys(moved))}
    numbers = np.array([texts[lsn] for lsn in moved], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(numbers).take(lsns.indices), pa.array(list(texts), pa.string()))
