"""A new lake, where a person says so: the empty record of a capture, with which the next run begins as a first one does.

Where nothing is that was there before, no run begins by itself (`lake.known`). *Crash:* between forgetting what was there and
making the record the next run makes it, as was requested.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import LakeError
from cdc_assets.lake.known import forget_record, remember_record
from cdc_assets.lake.owners import refuse_unread, tables_of
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest


class NewLake:
    """The lake of a capture that has none any more.

    Args:
        directory: of its record.
        claim: makes the record.
    """

    def __init__(self, tables: TopicTables, directory: str, claim: Callable[[datetime], object]) -> None:
        self._tables, self._directory, self._claim = tables, directory, claim

    @classmethod
    def of(cls, config: CaptureConfig) -> Self:
        """Of a capture from SQL Server."""
        tables = TopicTables.of(config)
        manifest = Manifest(tables, config.events.topic_prefix)
        return cls(tables, manifest.directory, manifest.claim)

    @property
    def address(self) -> str:
        """Of the record."""
        return self._tables.location.uri(self._directory)

    def check(self) -> None:
        """Check that nothing of the capture is there.

        Raises:
            LakeError: something is, or the lake cannot be read.
        """
        self._tables.forget(self._directory)
        if self._tables.open(self._directory) is not None:
            raise LakeError(
                f"{self.address} is there, so the lake is no new one. Next: let a run continue it, or move all of it away with "
                "`cdc-assets reset --capture`."
            )
        found, unread = tables_of(self._tables)
        if found:
            raise LakeError(
                f"{self.address} is missing, but {', '.join(found[:5])} hold events of capture {self._tables.capture}, so the "
                "lake is no new one. Next: restore that folder from a copy, or move those away."
            )
        refuse_unread(self._tables, unread)

    def begin(self) -> None:
        """Make the record, whatever was there before.

        Raises:
            LakeError: as `check`; or it cannot be written.
        """
        self.check()
        forget_record(self.address)
        self._claim(datetime.now(UTC))
        remember_record(self.address)
