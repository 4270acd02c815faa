"""The chain of transforms, in the order of `transforms`, each for the records that its predicate chooses."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cdc_assets.config.patterns import PatternError, matches
from cdc_assets.config.settings.transforms import (
    LogicalRouteSettings,
    OutboxSettings,
    Predicate,
    RouteSettings,
    Step,
    TimezoneSettings,
    UnwrapSettings,
)
from cdc_assets.errors import InvalidValueError
from cdc_assets.publish.transforms.logical import LogicalRoute
from cdc_assets.publish.transforms.outbox import Outbox
from cdc_assets.publish.transforms.part import Mask, Part, Transform, is_valid, part_of
from cdc_assets.publish.transforms.route import Route
from cdc_assets.publish.transforms.timezones import Timezone
from cdc_assets.publish.transforms.unwrap import Unwrap

_KINDS: Final[Mapping[type, Callable[[Any], Transform]]] = {
    UnwrapSettings: Unwrap,
    RouteSettings: Route,
    LogicalRouteSettings: LogicalRoute,
    OutboxSettings: Outbox,
    TimezoneSettings: Timezone,
}


class Chain:
    """Transforms one after another.

    Args:
        steps: in their order.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = [(_KINDS[type(step.settings)](step.settings), step.predicate) for step in steps]

    @property
    def needs_deletes(self) -> bool:
        """Whether a tombstone must come together with its delete."""
        return any(isinstance(transform, Unwrap) and transform.needs_deletes for transform, _ in self._steps)

    def __bool__(self) -> bool:
        return bool(self._steps)

    def apply(self, topic: str, batch: pa.RecordBatch) -> list[Part]:
        """What becomes of a topic's rows; those that are in no part are left out.

        Raises:
            InvalidValueError: a transform fails for these rows.
        """
        parts = [part_of(topic, batch)]
        for transform, predicate in self._steps:
            parts = [made for part in parts for made in _apply(transform, predicate, part) if len(made)]
        return parts


def _apply(transform: Transform, predicate: Predicate | None, part: Part) -> Sequence[Part]:
    if predicate is None:
        return transform.apply(part)
    chosen = _chosen(predicate, part)
    if not chosen.any():
        return [part]
    others = [] if chosen.all() else [part.where(~chosen)]
    return [*transform.apply(part.where(chosen)), *others]


def _chosen(predicate: Predicate, part: Part) -> Mask:
    if not predicate.pattern:
        return ~is_valid(part.value.array) ^ predicate.negated
    try:
        fits = matches(predicate.pattern, part.topic)
    except PatternError as error:
        raise InvalidValueError(
            "predicate", part.topic, f"an expression that matches faster ({error})", "simplify it"
        ) from None
    return np.full(len(part), fits != predicate.negated)
