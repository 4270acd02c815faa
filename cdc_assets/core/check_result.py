"""Result of one check of the server before a capture."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check.

    Args:
        check: name of the check.
        subject: database or table.
        ok: whether the actual value is as expected.
        actual: actual value.
        expected: required value.
        remedy: SQL or advice; empty if the check passed.
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
