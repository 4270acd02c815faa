"""The name patterns of catalogue procedures."""

import re
from functools import lru_cache


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    r"""`%`, `_`, `[abc]`, and `\` before a wildcard as drivers escape it."""
    parts, place = [], 0
    while place < len(pattern):
        char = pattern[place]
        if char == "\\" and place + 1 < len(pattern):
            place += 1
            parts.append(re.escape(pattern[place]))
        elif char == "[" and (end := pattern.find("]", place + 2)) > 0:
            inner = pattern[place + 1 : end]
            negated = inner.startswith("^")
            parts.append(f"[{'^' if negated else ''}{re.escape(inner[negated:]).replace(chr(92) + '-', '-')}]")
            place = end
        else:
            parts.append({"%": ".*", "_": "."}.get(char, re.escape(char)))
        place += 1
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)


def matches(name: str, pattern: str | None, use_pattern: bool = True) -> bool:
    """Whether a name fits; NULL fits everything."""
    if pattern is None:
        return True
    if not use_pattern:
        return name.casefold() == pattern.casefold()
    return _compiled(pattern).fullmatch(name) is not None
