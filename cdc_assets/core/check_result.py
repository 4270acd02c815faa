"""Result of one check of the server before a capture."""

from dataclasses import dataclass
from typing import Self


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

    @classmethod
    def failed(
        cls, check: str, subject: str, problem: object, expected: str, remedy: str = "", *, blocking: bool = True
    ) -> Self:
        """A check that failed, from an error or a text that ends with its next step.

        Args:
            remedy: if the text names no next step.
        """
        actual, _, step = str(problem).partition(" Next: ")
        return cls(check, subject, False, actual, expected, step or remedy, blocking)

    def __str__(self) -> str:
        return f"{self.subject}: {self.check} is {self.actual}, expected {self.expected}. Next: {self.remedy}"
