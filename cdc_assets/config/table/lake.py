"""Properties of the lake: where it is, and what of it is kept."""

from cdc_assets.config import kinds
from cdc_assets.config.property import Property

LAKE = (
    Property(
        "lake.path",
        kinds.FILLED,
        "lake",
        "Directory or object-store URL that holds one Delta table per topic.",
        "lake.path",
        note="Only in cdc-assets.",
    ),
    Property(
        "lake.storage.option.<option>",
        kinds.TEXT,
        None,
        "Option of the object store's client, such as `AWS_REGION`.",
        secret=True,
        note="Only in cdc-assets.",
    ),
    Property(
        "lake.compact.after.files",
        kinds.integer(0),
        "200",
        "Number of small files at which a table is compacted; 0 never.",
        "lake.compact_after_files",
        note="Only in cdc-assets.",
    ),
    Property(
        "lake.target.file.bytes",
        kinds.integer(1024 * 1024, 1024**4),
        str(128 * 1024 * 1024),
        "Target file size of compaction.",
        "lake.target_file_bytes",
        note="Only in cdc-assets.",
    ),
    Property(
        "lake.retention.hours",
        kinds.integer(1, 1_000_000),
        "2",
        "Age at which unreferenced files may be removed; readers of older versions, and writers that take longer, "
        "would miss them. Each checkpoint of a Delta log lists the files that wait for removal, so commits cost more with more hours.",
        "lake.retention_hours",
        note="Only in cdc-assets.",
    ),
    Property(
        "lake.log.commits",
        kinds.integer(100, 100_000_000),
        "200",
        "Number of newest commits that stay in a table's Delta log; readers that follow the log commit by commit, such as a "
        "stream over the table, must keep up with them.",
        "lake.log_commits",
        note="Only in cdc-assets.",
    ),
    Property(
        "lake.sample.rows",
        kinds.integer(0, 20),
        "5",
        "Rows of a table's newest file that each materialization of its assets shows, and so Dagster's storage keeps; 0 for none. "
        "Columns that are masked, hashed or truncated are shown as masked.",
        "lake.sample_rows",
        note="Only in cdc-assets.",
    ),
    Property(
        "lake.topic.retention.hours",
        kinds.integer(0, 1_000_000),
        "0",
        "Age of changes that are dropped from topics, once their mirror and the publisher to Kafka have them; 0 keeps all. Topics "
        "without a mirror keep theirs. A reader that asks for dropped events gets an error.",
        "lake.topic_hours",
        note="Only in cdc-assets.",
    ),
    Property(
        "lake.topic.cleanup.policy",
        kinds.choice("delete", "compact"),
        "delete",
        "Which changes of that age are dropped: all, or (compact) those that later ones of the same key replace, so that a topic "
        "always makes its table's rows. A table without a key, or with events that shorten it, keeps all.",
        "lake.topic_policy",
        note="Only in cdc-assets; the values are those of Kafka.",
    ),
    Property(
        "lake.topic.retention.unmirrored",
        kinds.BOOLEAN,
        "false",
        "Drop them also from topics without a mirror: then they are nowhere in the lake.",
        "lake.topic_unmirrored",
        note="Only in cdc-assets.",
    ),
)
