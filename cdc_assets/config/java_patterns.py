"""Regular expressions and replacements in Java's syntax, as transforms have them."""

import re
from typing import Any

from cdc_assets.config.patterns import PatternError, compiled, matches
from cdc_assets.errors import ConfigurationError

_REFERENCE = re.compile(
    r"\\(?P<plain>.)|\$(?:\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|(?P<digits>[0-9]+))|(?P<bad>[\\$])", re.DOTALL
)


def java_pattern(property_name: str, text: str) -> str:
    """The expression, which was checked.

    Raises:
        ConfigurationError: it does not compile.
    """
    try:
        compiled(text)
    except PatternError as error:
        raise ConfigurationError(property_name, text, f"a regular expression ({error})", "correct it") from None
    return text


def matches_name(property_name: str, pattern: str, name: str) -> bool:
    """Whether a property's expression matches a whole name.

    Raises:
        ConfigurationError: it takes too long.
    """
    try:
        return matches(pattern, name)
    except PatternError as error:
        expected = f"a regular expression that matches quickly ({error})"
        raise ConfigurationError(property_name, pattern, expected, "correct it") from None


def check_replacement(property_name: str, pattern: str, text: str) -> None:
    """Check that a replacement names groups that the expression has.

    Raises:
        ConfigurationError: it does not.
    """
    expression = compiled(pattern)
    for found in _REFERENCE.finditer(text):
        name, digits = found["name"], found["digits"]
        if (
            found["bad"]
            or (name and name not in expression.groupindex)
            or (digits and int(digits[0]) > expression.groups)
        ):
            raise ConfigurationError(
                property_name,
                text,
                r"a replacement with $1 or ${name} for groups of the expression",
                r"correct it; \$ is a plain $",
            )


def replace_whole(pattern: str, replacement: str, text: str) -> str | None:
    """The text with the first match replaced, if the expression matches all of it; else None.

    Raises:
        PatternError: it takes too long.
    """
    if not matches(pattern, text):
        return None
    found = compiled(pattern).search(text)  # it ends no later than `matches`
    return text[: found.start()] + _expanded(found, replacement) + text[found.end() :]


def _expanded(found: Any, replacement: str) -> str:
    def part(reference: re.Match[str]) -> str:
        if reference["plain"] is not None:
            return reference["plain"]
        if reference["name"]:
            return found[reference["name"]] or ""
        digits = reference["digits"]
        taken = 1
        while taken < len(digits) and int(digits[: taken + 1]) <= found.re.groups:  # as many digits as there are groups
            taken += 1
        return (found[int(digits[:taken])] or "") + digits[taken:]

    return _REFERENCE.sub(part, replacement)
