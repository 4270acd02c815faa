"""T-SQL text to tokens with their places and lines."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mssql_standin.errors import SqlError


class Kind(Enum):
    """What a token is."""

    WORD = "word"
    NAME = "name"
    """Bracketed or double-quoted identifier."""
    VARIABLE = "variable"
    STRING = "string"
    NUMBER = "number"
    BINARY = "binary"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Token:
    """A token; `text[start:end]` is how it was written."""

    kind: Kind
    text: str
    start: int
    end: int
    line: int

    @property
    def upper(self) -> str:
        """The word in upper case; empty for everything that cannot be a keyword."""
        return self.text.upper() if self.kind is Kind.WORD else ""

    @property
    def value(self) -> str:
        """Identifier without brackets, string without quotes, else the text."""
        if self.kind is Kind.NAME:
            close = "]" if self.text[0] == "[" else '"'
            return self.text[1:-1].replace(close * 2, close)
        if self.kind is Kind.STRING:
            return self.text[self.text.index("'") + 1 : -1].replace("''", "'")
        return self.text


_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<string>[Nn]?'(?:[^']|'')*')
    |(?P<name>\[(?:[^\]]|\]\])*\]|"(?:[^"]|"")*")
    |(?P<variable>@@?[\w@$#]+)
    |(?P<binary>0[xX][0-9a-fA-F]*)
    |(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<word>[^\W\d][\w@$#]*|\#[\w@$#]+)
    |(?P<sign><=|>=|<>|!=|!<|!>|[-+*/%&|^]=|::|[-+*/%&|^~=<>!(),.;:?{}$\\])""",
    re.VERBOSE,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


def _after_comment(text: str, start: int) -> int:
    """End of a comment, which may hold others."""
    depth, place = 1, start + 2
    while depth:
        edge = _COMMENT_EDGE.search(text, place)
        if not edge:
            raise SqlError(113, "Missing end comment mark '*/'.", 15)
        depth += 1 if edge[0] == "/*" else -1
        place = edge.end()
    return place


def tokenize(text: str) -> list[Token]:
    """Tokens of a batch, without blanks and comments.

    Raises:
        SqlError: 105 for an unclosed quotation mark, 113 for an unclosed comment, 102 for a stray character.
    """
    tokens: list[Token] = []
    place, line = 0, 1
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found:
            raise _stray(text, place, line)
        end = found.end()
        kind = found.lastgroup
        if kind == "comment":
            end = _after_comment(text, place)
        elif kind != "space":
            tokens.append(Token(Kind(kind), text[place:end], place, end, line))
        line += text.count("\n", place, end)
        place = end
    return tokens


def _stray(text: str, place: int, line: int) -> SqlError:
    if text[place] in "'\"[" or text[place : place + 2] in ("N'", "n'"):
        error = SqlError(
            105, f"Unclosed quotation mark after the character string '{text[place + 1 : place + 129]}'.", 15
        )
    else:
        error = SqlError(102, f"Incorrect syntax near '{text[place]}'.", 15)
    error.line = line
    return error
