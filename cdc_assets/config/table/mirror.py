"""Properties of mirrors."""

from cdc_assets.config import kinds
from cdc_assets.config.property import Property

MIRROR = (
    Property(
        "mirror.enabled",
        kinds.BOOLEAN,
        "false",
        "Keep for each captured table its current rows and their history as tables in natural types, next to the topic.",
        "mirror.enabled",
        note="Only in cdc-assets.",
    ),
    Property(
        "mirror.table.include.list",
        kinds.REGEXES,
        "",
        "Tables with a mirror, as `schema.table` or `database.schema.table`; all if empty.",
        "mirror.include",
        note="Only in cdc-assets.",
    ),
    Property(
        "mirror.interval.ms",
        kinds.milliseconds(),
        "30000",
        "Time from one step of the mirrors to the next while a loop runs; at its end they follow anyway.",
        "mirror.interval_s",
        note="Only in cdc-assets.",
    ),
    Property(
        "mirror.late.ms",
        kinds.milliseconds(),
        "600000",
        "The capture is in trouble when a mirror lags behind its topic and has not moved for this time.",
        "mirror.late_s",
        note="Only in cdc-assets.",
    ),
    Property(
        "mirror.reconcile.ranges",
        kinds.integer(0, 1_000_000),
        "0",
        "Number of key ranges of each table that a run of the job `<capture>_reconcile` compares with the server, after those "
        "that it compared last; 0 compares all.",
        "mirror.reconcile_ranges",
        note="Only in cdc-assets.",
    ),
    Property(
        "mirror.reconcile.settle.ms",
        kinds.milliseconds(),
        "15000",
        "Time that the capture job has for a change before it counts as one that is not in the log, on a database in which "
        "nothing else is committed, if the login may not see what the job does (VIEW DATABASE STATE). Used by "
        "`reconcile`, and by `capture --until-now`. A job that polls less often than every 5 seconds needs more.",
        "mirror.settle_s",
        note="Only in cdc-assets.",
    ),
)
