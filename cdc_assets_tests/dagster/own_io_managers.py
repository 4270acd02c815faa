"""Somebody's own IO managers, which count their calls and say in each commit whose it is."""

from functools import partial
from typing import Any

from cdc_assets import Append, EnvelopeIOManager, SchemaHistoryIOManager
from cdc_assets_tests.appends import TEAM, CountingSink

TOPICS, HISTORY = CountingSink(), CountingSink()
"""What the IO managers of all runs have been called with."""


class OwnEnvelopeIOManager(EnvelopeIOManager):
    """Adds metadata to commits."""

    team: str

    def write(self, append: Append) -> bool:
        TOPICS.called(append)
        landed = super().write(append.with_metadata({"acme.team": self.team}))
        return TOPICS.returns(append, landed=landed)


class OwnHistoryIOManager(SchemaHistoryIOManager):
    """The same."""

    def write(self, append: Append) -> bool:
        HISTORY.called(append)
        return HISTORY.returns(append, landed=super().write(append.with_metadata(TEAM)))


OWN: dict[str, Any] = {
    "envelope_io": partial(OwnEnvelopeIOManager, team="sales"),
    "schema_history_io": OwnHistoryIOManager,
}
