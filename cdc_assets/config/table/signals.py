"""Properties of signals and incremental snapshots."""

from cdc_assets.config import kinds
from cdc_assets.config.property import Property

SIGNALS = (
    Property(
        "signal.data.collection",
        kinds.ENTRIES,
        "",
        "Signal table as `database.schema.table`; a comma list names one per database. It needs change data capture, "
        "three columns, and INSERT for the login. It is captured whatever the filters say.",
        "signals.collections",
    ),
    Property(
        "signal.enabled.channels",
        kinds.ENTRIES,
        "source",
        "Where signals come from: `source` (the signal table), `file`.",
        "signals.channels",
    ),
    Property(
        "signal.file",
        kinds.FILLED,
        "file-signals.txt",
        "File of channel `file`: one JSON object with id, type and data per line. It is emptied when it was read.",
        "signals.file",
    ),
    Property(
        "signal.poll.interval.ms",
        kinds.milliseconds(),
        "5000",
        "How often the file is looked at.",
        "signals.poll_interval_s",
    ),
    Property(
        "incremental.snapshot.chunk.size",
        kinds.integer(1, 1_000_000),
        "1024",
        "Rows per chunk of an incremental snapshot.",
        "signals.chunk_rows",
        note="64 chunks share a pair of markers.",
    ),
    Property(
        "incremental.snapshot.option.recompile",
        kinds.BOOLEAN,
        "false",
        "Add OPTION (RECOMPILE) to chunk queries.",
        "signals.recompile",
    ),
    Property(
        "incremental.snapshot.watermarking.strategy",
        kinds.choice("insert_insert", "insert_delete"),
        "insert_insert",
        "Whether a chunk is closed by a second row in the signal table or by the deletion of the first.",
        "signals.watermarking",
    ),
)
