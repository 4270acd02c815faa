"""Whether mirrors follow their topics: which cannot, with the reason that their last step has met, and whether anybody keeps them.

*What is late.* A mirror that lags its topic is the next step's, which may be minutes away. So they are late if none of them has moved for
`mirror.late.ms` though one lags; a capture that never had any has had that time since its manifest was made.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.ledger.readings import Reading
from cdc_assets.mirror.capture import ALL, check_settings, has_mirror
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.ledger import MirrorLedger, MirrorState
from cdc_assets.mirror.steps import is_behind
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.overview.formatting import duration
from cdc_assets.overview.report import Trouble

_MAX_NAMED = 5


def mirror_troubles(overview: CaptureOverview, at: datetime) -> Iterator[Trouble]:
    """What is wrong with the mirrors of a capture; nothing if it has none.

    Raises:
        LakeError: the lake cannot be read.
    """
    config = overview.config
    if not config.mirror.enabled:
        return
    try:
        check_settings(config)
    except ConfigurationError as error:
        yield Trouble(ALL, f"the settings allow none: {error}")
        return
    topics = {topic_name(table, config.events): table for table in overview.known if has_mirror(config, table)}
    for what, found in overview.hindrances.get("mirrors", {}).items():
        if what in topics:
            yield Trouble(f"the mirror of {topics[what]}", f"it cannot follow its topic: {found.why}")
        elif what == ALL:
            yield Trouble(ALL, f"they cannot follow since {found.since:%Y-%m-%d %H:%M:%S} UTC: {found.why}")
    ledger = MirrorLedger(MirrorTables.of(config).tables, config.events.topic_prefix)
    rows = ledger.rows()
    states = ledger.read() if rows else {}
    known = {table: states.get(topic, MirrorState()) for topic, table in topics.items()}
    readings = {table: overview.state.readings.get(table, ()) for table in known}
    behind = [table for table, state in known.items() if is_behind(state, overview.known[table], readings[table])]
    since = rows[-1]["at"] if rows else _begun(overview)
    idle_s = (at - since).total_seconds() if since else 0.0
    held = [table for table in behind if _is_held(known[table], readings[table])]
    behind = [table for table in behind if table not in held]
    held = [
        table for table in held if table.database not in overview.state.snapshots
    ]  # else a snapshot is still reading
    if held and idle_s > config.mirror.late_s:
        yield Trouble(
            ALL,
            f"those of {_named(held)} wait until it is known up to where in the log a snapshot has read their rows, for which the capture "
            "job must pass the end of that snapshot, and the capture must run. Next: let it run; if it does, see `cdc-assets doctor`",
        )
    if behind and idle_s > config.mirror.late_s:
        was = f"nothing has moved them for {duration(idle_s)}" if rows else "none was ever made"
        yield Trouble(
            ALL,
            f"those of {_named(behind)} are behind their topics, and {was}. Next: `cdc-assets mirror`, or let Dagster's sensor run; "
            "`capture` updates none",
        )


def _is_held(state: MirrorState, readings: Sequence[Reading]) -> bool:
    """Whether it is unknown yet where rows of a table end in the log."""
    return not state.is_keyless and any(reading.high is None for reading in readings)


def _named(tables: Sequence[TableId]) -> str:
    more = f" and {len(tables) - _MAX_NAMED} more" if len(tables) > _MAX_NAMED else ""
    return ", ".join(map(str, tables[:_MAX_NAMED])) + more


def _begun(overview: CaptureOverview) -> datetime | None:
    """When the manifest was made."""
    handle = overview.lake.open(manifest_directory(overview.config.events.topic_prefix))
    created = handle.metadata().created_time if handle is not None else None
    return datetime.fromtimestamp(created / 1000, UTC) if created else None
