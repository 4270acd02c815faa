"""The filters of the connectors."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from cdc_assets.config.engine import OVERRIDES, READ_LIST, EngineConfig
from cdc_assets.config.filters import Names
from cdc_assets.connectors.engine.signal_targets import identifier
from cdc_assets.core.identifiers import TableId


class ConnectorFilter:
    """A connector's include and exclude lists; both match whole names in any letter case.

    Raises:
        ConfigurationError: an expression does not compile.
    """

    def __init__(self, config: EngineConfig, *kinds: str) -> None:
        self._lists = {
            kind: [_names(config, f"{kind}.{side}.list") for side in ("include", "exclude")] for kind in kinds
        }

    def accepts(self, **names: tuple[str, ...]) -> bool:
        """Whether each kind's names pass its lists.

        Args:
            names: by kind (`database`, `schema`, `table`), the forms in which the lists may name it.
        """
        return all(
            (not include or include.match(*names[kind])) and not exclude.match(*names[kind])
            for kind, (include, exclude) in self._lists.items()
        )


def _names(config: EngineConfig, name: str) -> Names:
    texts = config.properties.get(name, "").split(",")
    return Names(name, [text.strip() for text in texts if text.strip()])


def passing(config: EngineConfig, lists: Mapping[str, str]) -> Callable[[TableId], bool]:
    """Whether a table passes lists that a connector was given before.

    Args:
        lists: as `EngineConfig.lists`, or `EngineConfig.read_lists`.
    """
    has_schemas = config.kind not in ("mysql", "mariadb")
    own = replace(config, properties=lists)
    accepts = ConnectorFilter(own, "schema" if has_schemas else "database", "table").accepts
    read, overridden = _names(own, READ_LIST), _names(own, OVERRIDES)

    def passes(table: TableId) -> bool:
        name = table.within_database if has_schemas else str(table)
        is_read = not read or read.match(identifier(config, table))
        is_whole = not overridden.match(identifier(config, table), table.within_database)
        return is_read and is_whole and accepts(database=(table.database,), schema=(table.schema,), table=(name,))

    return passes
