"""Two databases of one server, of which some questions are refused."""

from pathlib import Path
from typing import Any

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.two_databases import TwoDatabases, config_of_two


class Refusing(TwoDatabases):
    """A server of which some databases refuse some questions."""

    def __getattribute__(self, name: str) -> Any:
        found, refusals = super().__getattribute__(name), super().__getattribute__("__dict__").get("refusals", {})
        if name not in refusals:
            return found

        def asked(database: str, *rest: Any) -> Any:
            if database in refusals[name]:
                raise refusals[name][database]
            return found(database, *rest)

        return asked


def two(path: Path, **changes: object) -> tuple[Refusing, CaptureConfig, TableId, TableId]:
    """A captured table of each, with a change that was not read yet."""
    server = Refusing()
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.idle_tick()
    config = config_of_two(path, **changes)
    make_capture(server, config).snapshot()
    server.commit((lines, "insert", 50, "a"), (other, "insert", 50, "a"))
    return server, config, lines, other
