"""Which tables of a connector lack rows, by its recorded lists of tables and reads (`table_lists`)."""

from collections.abc import Callable, Mapping, Sequence

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.engine.filters import passing
from cdc_assets.connectors.engine.signal_targets import identifier
from cdc_assets.connectors.engine.table_lists import Lists
from cdc_assets.connectors.engine.topics import routes, topic_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError


def lacking(config: EngineConfig, lists: Sequence[Lists], read_at: Mapping[str, int]) -> Callable[[TableId], bool]:
    """Whether a table was left out by lists, and not read since. Lists that are not understood are as if they let all through. Where
    transforms choose topics, rows in one say nothing of the table of that name.

    Args:
        lists: oldest first.
        read_at: place of the newest list at the time of the last read, by the table's topic or as the connector names it.
    """
    is_routed = routes(config)
    were = list[Callable[[TableId], bool]]()
    for one in lists:
        try:
            were.append(passing(config, one))
        except ConfigurationError:
            were.append(lambda _: True)

    def lacks(table: TableId) -> bool:
        left_out = max((place for place, passes in enumerate(were) if not passes(table)), default=-1)
        names = [identifier(config, table), *([] if is_routed else [topic_of(table, config)])]
        return left_out > max(read_at.get(name, -1) for name in names)

    return lacks


def left_out(config: EngineConfig, name: str) -> Callable[[TableId], bool]:
    """Whether one of `EngineConfig.row_lists` leaves rows of a table out of the connector's own snapshot."""
    return lacking(config, [{name: config.row_lists.get(name, "")}], {})


def still_read(config: EngineConfig, lists: Sequence[Lists], read_at: Mapping[str, int]) -> list[str]:
    """Names, as the connector has them, of tables that were read and not left out since."""
    lacks = lacking(config, lists, read_at)
    found = {name: _table(config, name) for name in read_at}
    try:
        return [name for name, table in found.items() if table is not None and not lacks(table)]
    except ConfigurationError:  # an expression takes too long
        return []


def _table(config: EngineConfig, name: str) -> TableId | None:
    """The table that a connector names so; None if the name does not show it."""
    parts = name.split(".")
    if config.kind in ("mysql", "mariadb", "postgresql"):
        first = (parts[0], "") if config.kind != "postgresql" else ("", parts[0])
        return TableId(*first, parts[1]) if len(parts) == 2 else None
    return TableId(*parts) if len(parts) == 3 else None
