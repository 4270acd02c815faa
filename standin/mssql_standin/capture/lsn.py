"""Log sequence numbers: arithmetic, text and number forms, and the log position of a database.

An LSN is 10 bytes, `VLF : block : slot` (4 + 4 + 2, big-endian), so byte order is log order.

A commit with n changes takes a run of numbers: change k gets the k-th, the commit record
the n-th. A slot number is 16 bits wide, so a run longer than 65,533 carries into the block.

Why positions are strictly increasing: numbers are drawn from one `LogPosition` per
database under its lock, and every draw starts at a later block than the end of the one
before. Commits draw while they hold the engine's only write lock, so commit order is LSN
order. A drawn number whose transaction rolls back is never used: a gap, as in a real log.
After a restart the position continues in the next VLF; the VLF in use is stored with the
first commit in it, so no committed LSN can come again. Only a restored database goes on
where its backup ended (`end`): as on a real server, LSNs of lost transactions may return.
"""

import threading
from typing import Final

SLOTS: Final = 65_533
"""Numbers per block that a run uses: slots 2 to 65,534."""
FIRST_SLOT: Final = 2
_BLOCK_STEP: Final = 8
_VLF_BLOCKS: Final = 0x40000
"""A VLF of 128 MB in blocks of 512 bytes."""

ZERO: Final = bytes(10)
_TOP: Final = (1 << 80) - 1


def pack(vlf: int, block: int, slot: int) -> bytes:
    """The 10 bytes of (VLF, block, slot)."""
    return (vlf << 48 | block << 16 | slot).to_bytes(10, "big")


def run_lsn(vlf: int, block: int, number: int) -> bytes:
    """The LSN of the number-th record of a run that starts at (VLF, block)."""
    return pack(vlf, block + number // SLOTS, FIRST_SLOT + number % SLOTS)


def increment(lsn: bytes) -> bytes:
    """`sys.fn_cdc_increment_lsn`: the next 10-byte number."""
    return min(int.from_bytes(lsn, "big") + 1, _TOP).to_bytes(10, "big")


def decrement(lsn: bytes) -> bytes:
    """`sys.fn_cdc_decrement_lsn`: the previous 10-byte number."""
    return max(int.from_bytes(lsn, "big") - 1, 0).to_bytes(10, "big")


def text(lsn: bytes) -> str:
    """`0000002c:00000cb0:0054`, as DMVs print it."""
    digits = lsn.hex()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def literal(lsn: bytes) -> str:
    """`0x0000002C00000CB00054`, as error messages print it."""
    return "0x" + lsn.hex().upper()


def number(lsn: bytes) -> int:
    """The `numeric(25,0)` form of DMVs and backup history: VLF · 10^15 + block · 10^5 + slot."""
    return int.from_bytes(lsn[:4], "big") * 10**15 + int.from_bytes(lsn[4:8], "big") * 10**5 + int.from_bytes(lsn[8:])


class LogPosition:
    """Where the log of one database ends.

    Args:
        vlf: the VLF to continue in.
        block: its first block that has not been used.
    """

    def __init__(self, vlf: int, block: int = 0x10) -> None:
        self._lock = threading.Lock()
        self.vlf, self._block = vlf, block

    @classmethod
    def at(cls, end: bytes) -> "LogPosition":
        """The position that was `end`."""
        return cls(int.from_bytes(end[:4], "big"), int.from_bytes(end[4:8], "big"))

    @property
    def end(self) -> bytes:
        """Above every LSN that was drawn, and below every one that will be."""
        with self._lock:
            return pack(self.vlf, self._block, 0)

    def run(self, changes: int) -> tuple[int, int]:
        """Draw `changes` numbers and one for the commit record.

        Returns:
            (VLF, first block): see `run_lsn`.
        """
        blocks = changes // SLOTS + 1
        with self._lock:
            if self._block + blocks > _VLF_BLOCKS and self._block > 0x10:
                self.vlf, self._block = self.vlf + 1, 0x10
            start = self._block
            self._block += blocks - 1 + _BLOCK_STEP
            return self.vlf, start

    def next(self) -> bytes:
        """Draw one LSN."""
        return run_lsn(*self.run(0), 0)
