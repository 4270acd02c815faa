r"""Java's expressions as those of the package `regex`, so that a connector's settings select the same names.

Translated is what is written otherwise: `\Q…\E`, `(?<name>…)`, and a hyphen after a set in a class, as in `[\w-.]`. Refused is
what both compile with another meaning (measured with Java 17): a brace that begins no count is an error in Java, a text in Python,
and may be a fuzzy match in `regex`; a bracket inside of a class begins a class in Java and is a text here; `\v` is one character or
seven. All else that has another meaning does not compile here, or is told by a warning of Python's `re`.
"""

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|(?P<vertical>\\v)|(?P<escape>\\[pPxN]\{[^}]*\}|\\.)|(?P<open>\[\^?\]?)|(?P<close>\])"
    r"|(?P<count>\{[0-9]+(?:,[0-9]*)?\})|(?P<brace>\{)|(?P<named>\(\?<(?=[A-Za-z]))|.",
    re.DOTALL,
)

_SETS: Final = frozenset({r"\w", r"\W", r"\d", r"\D", r"\s", r"\S"})


def translated(text: str) -> str:
    """The expression in the syntax of `regex`.

    Raises:
        ValueError: Java does not take it, or reads it otherwise; says which part.
    """
    in_class, before = False, ""
    parts = []
    for token in _TOKEN.finditer(text):
        part, kind = token[0], token.lastgroup
        if kind == "open":
            if in_class:
                raise ValueError(r"a class inside of a class; a plain bracket is \[")
            in_class = True
        elif kind == "close":
            in_class = False
        elif kind == "quoted":
            part = re.escape(token["quoted"])
        elif kind == "vertical":
            raise ValueError(r"\v is another set of characters in Java; write them as \n, \x0B, \f, \r")
        elif kind == "brace" and not in_class:
            raise ValueError(r"a brace that begins no count such as {2,3}; a plain brace is \{")
        elif kind == "named" and not in_class:
            part = "(?P<"
        elif part == "-" and in_class and before in _SETS:
            part = r"\-"
        parts.append(part)
        before = part
    return "".join(parts)
