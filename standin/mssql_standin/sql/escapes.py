"""What sqlglot's tokenizer does not know: ODBC escapes such as `{ts '…'}`, money literals, the empty binary `0x`."""

import re
from typing import Final

_ESCAPES: Final = re.compile(
    r"""(?P<skip>'(?:[^']|'')*'|\[(?:[^\]]|\]\])*\]|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)"""
    r"""|\{\s*(?P<kind>ts|d|t|guid)\s*(?P<text>'(?:[^']|'')*')\s*\}"""
    r"""|\{\s*fn\s+(?P<fn>\w+)"""
    r"""|(?P<close>\})"""
    r"""|(?P<empty>\b0x(?![0-9a-f]))"""
    r"""|(?<![\w$@#\]"])\$(?P<money>\d+(?:\.\d*)?|\.\d+)""",
    re.IGNORECASE | re.DOTALL,
)
_EMPTY_BINARY: Final = re.compile(r"\b0x(?![0-9a-f])", re.IGNORECASE)
_ODBC_FUNCTIONS: Final = {
    "UCASE": "UPPER", "LCASE": "LOWER", "LENGTH": "LEN", "IFNULL": "ISNULL", "NOW": "GETDATE", "REPEAT": "REPLICATE",
    "DATABASE": "DB_NAME", "DAYOFMONTH": "DAY", "TRUNCATE": "ROUND",
}  # fmt: skip
_LITERAL_TYPES: Final = {"ts": "datetime", "d": "datetime", "t": "datetime", "guid": "uniqueidentifier"}


def without_escapes(text: str) -> str:
    """Replace ODBC escapes and money literals by what they stand for."""
    if "{" not in text and "$" not in text and not _EMPTY_BINARY.search(text):
        return text

    def replacement(found: re.Match[str]) -> str:
        if found["skip"] is not None:
            return found["skip"]
        if found["kind"] is not None:
            return f"CAST({found['text']} AS {_LITERAL_TYPES[found['kind'].lower()]})"
        if found["fn"] is not None:
            return _ODBC_FUNCTIONS.get(found["fn"].upper(), found["fn"])
        if found["empty"] is not None:
            return "CAST('' AS varbinary(1))"
        if found["money"] is not None:
            return f"CAST({found['money']} AS money)"
        return " "

    return _ESCAPES.sub(replacement, text)
