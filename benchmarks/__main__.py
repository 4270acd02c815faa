"""`python -m benchmarks SUBJECT …`: every benchmark under one name; `python -m benchmarks SUBJECT --help` tells its options."""

import os
import sys
from importlib import import_module
from tempfile import TemporaryDirectory

from benchmarks.ending import ends_with_us
from cdc_assets.core.process_settings import set_up_process

SUBJECTS = {
    "versus": "this project, the real connector and PySpark's JDBC reader side by side (make bench)",
    "curves": "rates over tasks, tables and sizes of transactions, cost of commits over windows (make bench-curves)",
    "main_job": "snapshot and backlog beside the raw read, with memory",
    "incremental": "an incremental snapshot beside the stream",
    "mirror": "updates applied to a mirror beside delta-rs's merge, with memory",
    "latency": "from commit to lake, through dagster dev",
    "commit_cost": "windows behind many windows",
    "thousand_tables": "Dagster with many tables",
    "cold_start": "what Spark costs: cold processes, first changes, streams and idle captures, on Spark and in threads",
    "kafka": "from a server to topics in Kafka, beside the real connector in Kafka Connect",
    "engine": "an embedded connector into the lake beside the same with an empty sink",
    "standin": "the stand-in itself",
    "envelopes": "events and JSON from rows in memory",
}


def main() -> None:
    """Run one subject."""
    if len(sys.argv) < 2 or sys.argv[1].replace("-", "_") not in SUBJECTS:
        print("python -m benchmarks SUBJECT [options]\n")
        print(*(f"  {name:<18}{told}" for name, told in SUBJECTS.items()), sep="\n")
        raise SystemExit(0 if sys.argv[1:] in ([], ["--help"], ["-h"]) else 2)
    set_up_process()
    subject = sys.argv.pop(1).replace("-", "_")
    sys.argv[0] = f"python -m benchmarks {subject}"
    with TemporaryDirectory(prefix="bench-state-") as folder, ends_with_us():
        os.environ["CDC_STATE_DIR"] = folder  # lakes that are gone behind a benchmark are nothing to remember
        import_module(f"benchmarks.{subject}").main()


if __name__ == "__main__":
    main()
