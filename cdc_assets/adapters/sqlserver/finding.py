"""One thing that was looked at before a capture."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Args:
        check: what was looked at.
        subject: database or table.
        ok: whether it is as expected.
        actual: what was found.
        expected: what is needed.
        remedy: T-SQL or advice; empty if it is as expected.
        blocking: whether a capture cannot work without it.
    """

    check: str
    subject: str
    ok: bool
    actual: str
    expected: str
    remedy: str = ""
    blocking: bool = True

    def __str__(self) -> str:
        return f"{self.subject}: {self.check} is {self.actual}, expected {self.expected}. Next: {self.remedy}"
