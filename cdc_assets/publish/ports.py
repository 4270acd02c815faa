"""What publishing needs of a broker."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from cdc_assets.publish.records import RecordSlice


class Broker(Protocol):
    """Takes records in transactions, one transaction at a time, and holds the marker.

    All methods raise `ConnectionLostError` if the broker is away or a transaction failed for a reason that passes; then the
    broker is opened again. They raise `FencedError` if another producer has perhaps taken over,
    which the marker tells.
    """

    def open(self) -> str | None:
        """Take over from any other producer of this capture, whose open transaction is aborted.

        Returns:
            The newest marker.
        """

    def newest(self, *, final: bool = True) -> str | None:
        """The newest marker, without taking over.

        Args:
            final: whether the end of open transactions is waited for; an own one, after a lost connection, ends only once this is opened.
        """

    def prepare(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Make the topics that are missing.

        Returns:
            Topics that cannot be written, with the reason.
        """

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, records: RecordSlice) -> tuple[int, str]:
        """Hand over records in their order.

        Returns:
            How many were handed over, and why the next one will never be taken; all of them, and nothing, if it goes well.
            If the next one has ended the transaction, the commit tells its topic as well.
        """

    def commit(self, marker: str) -> Mapping[str, str]:
        """Write the marker and commit.

        Returns:
            Topics of which a record was refused for a reason that does not pass; then nothing is committed.
        """

    def abort(self) -> None:
        """End the open transaction, if any, without a trace."""

    def close(self) -> None:
        """End the connections."""
