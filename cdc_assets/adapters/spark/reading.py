"""The lake in any Spark session, also a notebook's: without Dagster, without a capture at hand, on classic Spark and Connect.

`read` and `create_views` read as the IO managers do (`lake_reader`). They import no Dagster, start no session and change
no setting of the one that they are given. What tasks need of this package, for a lake in an object store, is sent with the read.

*At a moment.* Each table is read as it is at the call; a view does not follow the capture. Views of several mirrors are
made one after the other, so one may be some steps ahead of another.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.adapters.spark.lake_reader import LakeReader
from cdc_assets.adapters.spark.lsn_range import LsnRange
from cdc_assets.config.engine import is_engine_file, load_engine_lake_config
from cdc_assets.config.load import load_lake_config
from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import LAKE_ERRORS, ConfigurationError, InvalidValueError, LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.delta import current_directory, history_directory

_CURRENT, _HISTORY = current_directory(""), history_directory("")


def read(
    session: SparkSession,
    lake: str | Path = "",
    name: str = "",
    *,
    from_lsn: str = "",
    to_lsn: str = "",
    generation: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    config: str | Path = "",
) -> DataFrame:
    """A table of the lake, as it is now.

    Args:
        session: of any kind; no setting of it is changed.
        lake: directory or object-store URL of the lake (`lake.path`).
        name: a topic, such as `shop.SalesDb.dbo.orders`, whose events are read. With `.__current` after it: the rows of
            its mirror; with `.__history`: their former versions. Or another table of the lake.
        from_lsn: only events after this commit LSN; or `earliest`: all that the topic still holds.
        to_lsn: only events up to this commit LSN.
        generation: number of the topic's generation, from 1; all of them together if None.
        storage_options: options of the object store's client, as in `lake.storage.option.…`; may hold secrets, which no
            message and no plan shows.
        config: a capture's configuration file, which names the lake and these options, in their place.

    Returns:
        Rows of that moment, which can be read as long as replaced files are kept (`lake.retention.hours`).

    Raises:
        EventsDroppedError: the topic no longer holds all that is requested.
        InvalidValueError: an argument is not valid.
        LakeError: there is no such table; the message says which there are. Or it cannot be read.
        LakeAwayError: the object store does not answer.

    Example:
        >>> read(spark, "var/lake", "shop.SalesDb.dbo.orders", from_lsn="00000030:000001a8:0003")
        >>> read(spark, config="shop.json", name="shop.SalesDb.dbo.orders.__current")
    """
    if "@" in name:
        raise InvalidValueError("name of a table", name, "that of a topic", "read a generation of it by generation=")
    lsns = LsnRange.parse(from_lsn, to_lsn)
    return _reader(session, _tables(lake, storage_options, config)).events(name, lsns, generation)


def create_views(
    session: SparkSession,
    lake: str | Path = "",
    below: str = "",
    *,
    storage_options: Mapping[str, str] | None = None,
    config: str | Path = "",
) -> dict[str, str]:
    """Make temporary views of all mirrors, for `session.sql`; existing ones of these names are replaced.

    A view is named like its topic, without `below`, with `_` in place of all other characters than letters and digits; behind
    that, `__history` if it holds the former versions. So with `below="shop.SalesDb.dbo."` the rows of the mirror of
    `shop.SalesDb.dbo.orders` are `orders`, and their former versions `orders__history`.

    Args:
        session: of any kind; no setting of it is changed.
        lake: as for `read`.
        below: only mirrors of topics whose names begin so.
        storage_options: as for `read`.
        config: as for `read`.

    Returns:
        The table of the lake after each view. Views are of this moment: call again for newer rows.

    Raises:
        InvalidValueError: an argument is not valid, or two mirrors would have the same view; none was made.
        LakeError: there is no mirror; or one cannot be read, after the views of all others were made.
        LakeAwayError: the object store does not answer.

    Example:
        >>> create_views(spark, "var/lake", "shop.SalesDb.dbo.")
        >>> spark.sql("SELECT name, count(*) FROM orders JOIN customers ON customer_id = customers.id GROUP BY name")
    """
    tables = _tables(lake, storage_options, config)
    wanted, made, problems = _views(tables.location, below), dict[str, str](), dict[str, Exception]()
    reader = _reader(session, tables)
    for view, directory in wanted.items():
        try:
            if tables.open(directory) is None:
                continue  # a folder in which a table is being made
            reader.table(directory).createOrReplaceTempView(f"`{view}`")
            made[view] = directory
        except (*LAKE_ERRORS, AnalysisException) as error:
            problems[directory] = error
    for directory, problem in problems.items():
        more = f", and {len(problems) - 1} more tables" if len(problems) > 1 else ""
        raise LakeError(
            f"{directory} cannot be read{more}: {problem} The other {len(made)} views are there."
        ) from problem
    return made


def _reader(session: SparkSession, tables: TopicTables) -> LakeReader:
    return LakeReader(tables, lambda: session)


def _tables(lake: str | Path, options: Mapping[str, str] | None, config: str | Path) -> TopicTables:
    """The tables of the lake that is named in one of two ways.

    Raises:
        ConfigurationError: in both or in none, or the configuration is not valid.
    """
    if bool(config) == bool(lake or options):
        given = "both" if config else "neither"
        raise ConfigurationError(
            "place of the lake", given, "lake with storage_options, or config", "give one of the two"
        )
    if not config:
        settings = LakeSettings(str(lake), tuple(sorted((options or {}).items())))
    else:
        load = load_engine_lake_config if is_engine_file(Path(config)) else load_lake_config
        settings = load(Path(config))[0].lake
    return TopicTables(Location.of(settings), "", settings)


def _views(location: Location, below: str) -> dict[str, str]:
    """The mirrors' tables by the names of their views.

    Raises:
        InvalidValueError: two have the same.
        LakeError: there are none.
    """
    found: dict[str, tuple[str, str]] = {}
    for directory in location.directories():
        if directory.endswith((_CURRENT, _HISTORY)) and directory.startswith(below):
            view = _view(directory, below)
            same, other = found.setdefault(view.lower(), (view, directory))
            if other != directory:
                raise InvalidValueError(
                    "name of a view",
                    same,
                    f"one mirror for it, not {other} and {directory}",
                    "narrow the names by below",
                )
    if not found:
        names = f" whose name begins with {below}" if below else ""
        raise LakeError(
            f"There is no mirror{names} in {location.root}. "
            "Next: correct the place or the beginning; or set mirror.enabled, or run cdc-assets mirror."
        )
    return dict(found.values())


def _view(directory: str, below: str) -> str:
    former = directory.endswith(_HISTORY)
    topic = directory.removesuffix(_HISTORY if former else _CURRENT)
    return "_".join(re.findall(r"\w+", topic.removeprefix(below) or topic)) + ("__history" if former else "")
