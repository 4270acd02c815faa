"""`RegexRouter`: another name for topics whose whole name an expression matches."""

from collections.abc import Sequence
from dataclasses import replace

from cdc_assets.config.java_patterns import replace_whole
from cdc_assets.config.patterns import PatternError
from cdc_assets.config.settings.transforms import RouteSettings
from cdc_assets.errors import InvalidValueError
from cdc_assets.publish.transforms.part import Part


class Route:
    """See the module."""

    def __init__(self, settings: RouteSettings) -> None:
        self._settings = settings

    def apply(self, part: Part) -> Sequence[Part]:
        """See `Transform`."""
        return [replace(part, topic=self.new_name(part.topic) or part.topic)]

    def new_name(self, topic: str) -> str | None:
        """The new name; None if the expression does not match.

        Raises:
            InvalidValueError: the expression takes too long.
        """
        try:
            return replace_whole(self._settings.pattern, self._settings.replacement, topic)
        except (PatternError, TimeoutError) as error:
            raise InvalidValueError(
                "transform", topic, f"an expression that matches faster ({error})", "simplify it"
            ) from None
