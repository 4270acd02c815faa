"""Log sequence numbers and positions.

An LSN is ten bytes, compared as unsigned bytes; Debezium prints it as
`xxxxxxxx:xxxxxxxx:xxxx` (spec debezium-sqlserver §3.1). A `Position` names one
row of the change tables of a capture and is both sort key and resume key:
`(commit_lsn, command_id, change_lsn, operation)`. `__$seqval` alone is not
enough: deferred updates log a DELETE and an INSERT under one seqval
(spec sqlserver-cdc §1.4 no. 7, 8, 32).
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from cdc_assets.errors import InvalidValueError

_TEXT = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}\Z")
_SIZE = 10
LSN_WIDTH = 22
"""Characters of a position that are the commit LSN."""
POSITION_WIDTH = 2 * LSN_WIDTH + 12
"""Characters of a position (`Position`); what some positions have besides follows."""


@dataclass(frozen=True, slots=True, order=True)
class Lsn:
    """A log sequence number.

    Args:
        raw: exactly 10 bytes, big-endian as SQL Server returns `binary(10)`.

    Raises:
        InvalidValueError: `raw` has another length.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != _SIZE:
            raise InvalidValueError("LSN", self.raw.hex(), "10 bytes", "pass the binary(10) value unchanged")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the printed form; letter case is ignored.

        Raises:
            InvalidValueError: the text is not `xxxxxxxx:xxxxxxxx:xxxx`.
        """
        lowered = text.strip().lower()
        if not _TEXT.match(lowered):
            raise InvalidValueError(
                "LSN",
                text,
                "xxxxxxxx:xxxxxxxx:xxxx in hexadecimal digits",
                "copy it from an event or `cdc-assets status`",
            )
        return cls(bytes.fromhex(lowered.replace(":", "")))

    @classmethod
    def from_decimal(cls, value: Decimal | int) -> Self:
        """An LSN as backup history and `sys.database_recovery_status` print it: numeric(25,0).

        Ten digits of the VLF's number, ten of the block's, five of the slot's.
        """
        digits = f"{int(value):025d}"
        vlf, block, slot = int(digits[:-15]), int(digits[-15:-5]), int(digits[-5:])
        return cls.from_int((vlf << 48) + (block << 16) + slot)

    @classmethod
    def from_int(cls, value: int) -> Self:
        """The LSN whose ten bytes are `value`, big-endian."""
        return cls(value.to_bytes(_SIZE, "big"))

    def __str__(self) -> str:
        text = self.raw.hex()
        return f"{text[:8]}:{text[8:16]}:{text[16:]}"

    def __int__(self) -> int:
        return int.from_bytes(self.raw, "big")

    def next(self) -> "Lsn":
        """The least LSN after this one, as `sys.fn_cdc_increment_lsn` gives it."""
        return Lsn.from_int(int(self) + 1)


ZERO_LSN = Lsn(bytes(_SIZE))
"""What `sys.fn_cdc_get_min_lsn` gives for an unknown instance; never a start position."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The place of one change row among all change rows of a capture.

    Args:
        commit_lsn: `__$start_lsn`.
        command_id: `__$command_id`, from 0; 0 where the change function does not return it.
        change_lsn: `__$seqval`.
        operation: `__$operation`, 1 delete, 2 insert, 3 update before, 4 update after.
    """

    commit_lsn: Lsn
    command_id: int
    change_lsn: Lsn
    operation: int

    def __str__(self) -> str:
        """Fixed width, so that text order is position order."""
        return f"{self.commit_lsn}/{self.command_id:08x}/{self.change_lsn}/{self.operation:x}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the output of `str`; text after the operation (a tombstone's mark) is ignored.

        Raises:
            InvalidValueError: the text is not a position.
        """
        try:
            commit, command, change, operation = text.split("/")
            return cls(Lsn.parse(commit), int(command, 16), Lsn.parse(change), int(operation[0], 16))
        except (ValueError, IndexError) as error:
            raise InvalidValueError(
                "position", text, "commit/command/change/operation", "copy it from the `position` column"
            ) from error
