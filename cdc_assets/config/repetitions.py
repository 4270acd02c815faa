"""How much the counts of a regular expression repeat, told without compiling it.

A compiler writes out what has to match at least so often: `a{10000000}` takes gigabytes, and so do small counts inside
one another, since they multiply.
"""

import re
from typing import Final

_QUOTED: Final = r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"
"""An escape, or a class: what looks like a count in them is none."""
_TOKEN: Final = re.compile(
    rf"(?P<comment>\(\?#[^)]*\))|(?P<open>\((?:\?(?:P?<\w+>|<?[=!]|[a-zA-Z-]*:))?)|(?P<close>\))"
    rf"|\{{(?P<min>[0-9]+)(?:,[0-9]*)?\}}|{_QUOTED}|.",
    re.DOTALL,
)
_VERBOSE: Final = re.compile(r"\(\?[a-zA-Z]*x")
_BLANK: Final = re.compile(rf"({_QUOTED})|\s|#[^\n]*", re.DOTALL)
_DIGITS: Final = 9
"""Digits of a count that are read; one of more is too large anyway."""


def written_out(text: str) -> int:
    """Number of parts of an expression with its counts written out: 3 for `a{3}`, 9 for `(ab{2}){3}`.

    The number for a text that is no expression means nothing.
    """
    parts = _parts(text)
    if _VERBOSE.search(text):  # blanks may stand between a group and its count
        parts = max(parts, _parts(_BLANK.sub(r"\1", text)))
    return parts


def _parts(text: str) -> int:
    open_groups, last = [0], 0  # parts of each group that is open, and of what a count would repeat
    for token in _TOKEN.finditer(text):
        if token["open"]:
            open_groups.append(0)
        elif token["close"]:
            last = open_groups.pop() if len(open_groups) > 1 else 0
            open_groups[-1] += last
        elif token["min"]:
            more = last * (max(1, int(token["min"][:_DIGITS])) - 1)
            open_groups[-1] += more
            last += more
        elif not token["comment"]:
            open_groups[-1] += 1
            last = 1
    return sum(open_groups)
