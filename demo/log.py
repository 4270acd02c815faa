"""What the demonstrations show of Dagster's console log."""

import re

_MESSAGE = re.compile(r"\S+ \S+ \S+ - dagster - (INFO|WARNING|ERROR|CRITICAL) - \S+ - \S+ - (\S+ - )?(?P<text>.*)")


def message_of(line: str) -> str | None:
    """The text of a line that is not only an engine event."""
    found = _MESSAGE.match(line)
    return found["text"] if found else None
