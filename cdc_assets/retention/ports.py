"""What retention asks the mirrors of a capture (`mirror.needs` answers it)."""

from typing import Protocol

from cdc_assets.core.identifiers import TableId
from cdc_assets.lake.events import TopicDescription


class Needs(Protocol):
    """What mirrors need of their topics, as far as they were at some moment."""

    def below(self, topic: str) -> tuple[str, str]:
        """Commit LSN below which the mirror of a topic has every event, and why it is not further, for people; the LSN is empty
        if it may need any of them."""

    def since(self, topic: str) -> str:
        """Commit LSN before which events have no meaning for the mirror any more; empty if all do."""


class Mirrors(Protocol):
    """The mirrors of a capture."""

    def has(self, table: TableId) -> bool:
        """Whether the settings give a table a mirror."""

    def needs(self) -> Needs:
        """What they need now.

        Raises:
            LakeError: it cannot be read.
        """

    def describe(self, table: TableId, topic: str) -> TopicDescription | str:
        """How events of a table are read as rows, also if it has no mirror; or why they do not identify rows.

        Raises:
            LakeError: the lake cannot be read.
        """
