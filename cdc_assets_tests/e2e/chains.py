"""At which step a run is killed, then the run after it, and so on: together the chains name every step.

Each is in the order in which restarted runs reach its steps, so that the next run always gets as far as the next step.
"""

WINDOW = [
    "window-planned",
    "history-written",
    "files-written",
    "table-committed",
    "transactions-committed",
    "window-complete",
]
"""A transaction over several tables is read from the log."""

IDLE = ["positions-advanced"]
"""A transaction that touches no captured table only moves positions."""

SNAPSHOT = [
    "snapshot-planned",
    "round-planned",
    "round-written",
    "table-committed",
    "round-complete",
    "snapshot-complete",
]
"""A table appears."""

MOMENT = ["moment-fixed"]
"""A table without a key is read; cut off by `unit/snapshot/test_moment.py`."""

READING = ["readings-closed"]
"""It is known where a snapshot's rows end in the log; cut off by `unit/mirror/test_read_later.py`."""

INCREMENTAL = [
    "signals-recorded",
    "marker-written",
    "chunk-read",
    "marker-written:2",
    "signals-recorded",
    "reads-committed",
]
"""A signal asks for a table; the second `signals-recorded` is that of a round's files."""

GAP = ["tables-marked"]
"""The clean-up job removes changes that were not read."""

RETIREMENT = ["window-planned", "history-recorded", "history-written", "window-complete"]
"""Capture is turned off for a table, which the schema history tells."""

CHECKPOINT = ["checkpoint-begun", "checkpoint-prepared", "checkpoint-written"]
"""Rows of a record are replaced by their fold."""

SINGLE = ["table-committed:3", *CHECKPOINT]
"""Killed on their own: in the middle of a commit of several tables; when the manifest is folded."""

ENGINE = ["files-written", "batch-planned", "table-committed", "table-committed:2", "batch-complete", "batch-planned:2"]
"""A capture by an embedded engine; killed in turn by `make test-engines`, which needs its databases."""

MIRROR = ["mirror-planned", "mirror-folded", "mirror-history-committed", "mirror-committed", "mirror-complete"]
"""A mirror follows its topic; killed in turn by the tests of mirrors, in processes of their own."""

ABSENCE = ["absence-recorded"]
"""A row that the server lacks goes from a mirror; killed by `unit/reconcile/test_reconcile.py`."""

RETENTION = ["retention-recorded", "retention-announced", "topic-dropped"]
"""Old events are dropped from a topic; killed one by one by `unit/retention/test_sigkill.py`."""

COMPACTION = [
    "compaction-written", "retention-recorded", "retention-announced", "topic-compacted", "compaction-complete",
]  # fmt: skip
"""A topic is compacted by key; killed one by one by the same tests."""

REPLACING = ["files-joined", "replacement-checked", "files-replaced"]
"""Small files are joined; killed one by one by `unit/lake/test_replacing.py`."""

RESET = ["table-moved"]
"""The folders of a capture are moved away; cut off by `unit/capture/test_reset_capture.py`."""

ADOPTION = ["adoption-planned", "adoption-complete"]
"""`cdc-assets adopt` records where a capture continues; no run of the daemon, so killed by `contract/test_adoption.py`."""

PUBLISH = ["publish-begun", "publish-sent", "publish-complete", "publish-sent:2", "publish-complete:2"]
"""Topics are published to Kafka; killed in turn by `make test-kafka`, which needs its broker."""
