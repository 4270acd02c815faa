"""Reads the options of one transform."""

from collections.abc import Mapping, Sequence
from typing import Final

from cdc_assets.config.java_patterns import check_replacement, java_pattern
from cdc_assets.config.settings.transforms import RouteSettings
from cdc_assets.errors import ConfigurationError

_OF_TRANSFORMS: Final = ("type", "predicate", "negate")


class Options:
    """The options of one transform or predicate; each is taken once, and what is left is refused.

    Args:
        start: what the names of its properties begin with.
        texts: all property texts.
    """

    def __init__(self, start: str, texts: Mapping[str, str]) -> None:
        self._start = start
        self._given = {name.removeprefix(start): text for name, text in texts.items() if name.startswith(start)}
        self._known: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        """A text without blanks around it."""
        self._known.append(name)
        return self._given.get(name, default).strip()

    def given(self, name: str) -> bool:
        """Whether an option is there."""
        self._known.append(name)
        return name in self._given

    def required(self, name: str) -> str:
        """A text that must be there."""
        if not (found := self.text(name)):
            raise ConfigurationError(self._start + name, None, "a value", "add it")
        return found

    def flag(self, name: str, default: str) -> bool:
        """True or false."""
        return self.choice(name, default, ("true", "false")) == "true"

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """One of some words, in any letter case."""
        found = self.text(name, default).lower()
        if found not in allowed:
            raise ConfigurationError(self._start + name, found, " or ".join(allowed), "correct it")
        return found

    def pattern(self, name: str, text: str) -> str:
        """An expression in Python's syntax."""
        return java_pattern(self._start + name, text)

    def route(self, regex: str, replacement: str, defaults: tuple[str, str] = ("", "")) -> RouteSettings:
        """An expression and its replacement."""
        found = self.text(regex, defaults[0]) or self.required(regex)
        pattern, text = self.pattern(regex, found), self.text(replacement, defaults[1])
        check_replacement(self._start + replacement, pattern, text)
        return RouteSettings(pattern, text)

    def refuse(self, name: str, expected: str, hint: str = "remove it") -> ConfigurationError:
        """What is wrong with an option."""
        return ConfigurationError(self._start + name, self._given.get(name), expected, hint)

    def finish(self) -> None:
        """Refuse what is left."""
        for name in self._given:
            if name not in (*self._known, *_OF_TRANSFORMS):
                known = ", ".join(dict.fromkeys(self._known)) or "none"
                raise ConfigurationError(self._start + name, "(given)", f"an option of it: {known}", "remove it")
