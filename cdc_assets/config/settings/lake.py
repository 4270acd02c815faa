"""Settings of the lake."""

from dataclasses import dataclass, field
from typing import Literal

CleanupPolicy = Literal["delete", "compact"]


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """Location of the Delta tables and their maintenance.

    Args:
        path: directory or object-store URL that holds one Delta table per topic.
        storage_options: options of the object store's client; may hold secrets, never printed.
        compact_after_files: number of small files at which a table is compacted; 0 never.
        target_file_bytes: target file size of compaction.
        retention_hours: age at which unreferenced files may be removed.
        log_commits: number of newest commits that stay in a table's Delta log.
        sample_rows: rows that asset pages show of a table; 0 for none.
        topic_hours: age of events that may be dropped from topics; 0 keeps all.
        topic_policy: which of them are: all (`delete`), or those that later ones of the same key replace (`compact`).
        topic_unmirrored: whether also topics without a mirror lose them.
    """

    path: str
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    compact_after_files: int = 200
    target_file_bytes: int = 128 * 1024 * 1024
    retention_hours: int = 2
    log_commits: int = 200
    sample_rows: int = 5
    topic_hours: int = 0
    topic_policy: CleanupPolicy = "delete"
    topic_unmirrored: bool = False
