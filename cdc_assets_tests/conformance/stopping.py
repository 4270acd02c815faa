"""Stops the real connector behind chosen records: `python -m …conformance.stopping PROPERTIES OUT COUNTS`.

COUNTS is a JSON array of total numbers of records, growing. For each of them the engine is started over its offsets,
delivers records until it has delivered so many, and is closed; nothing behind is marked as processed. Its offsets and
schema history are then copied to `<number>.offsets` and `<number>.history` beside OUT. A delete is never separated from
its tombstone: both have the same offset, so no reader could continue between them. Nor does it stop behind a BEGIN or END,
which have the offset of the event that follows: the connector itself loses that event. The last line of OUT is
`{"stopped": …}`.
"""

import json
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from cdc_assets_tests.conformance.engine import json_engine, record_line, start_java

QUIET_S = 12.0
"""Seconds without a record after which the log is at its end; an END comes after an idle scan."""


def run(properties: dict[str, str], out: Path, counts: list[int]) -> None:
    """Stop behind each count, and finally at the end of the log."""
    import jpype

    work = out.parent
    start_java(work, properties["connector.class"])
    delivered, ended = 0, ""
    with out.open("a") as lines:
        for number, count in enumerate(counts):
            delivered, ended = _until(jpype, properties, lines, delivered, count)
            for kind, name in (("offsets", "offset.storage.file.filename"), ("history", _HISTORY)):
                shutil.copy(properties[name], work / f"{number}.{kind}")
            (work / f"{number}.count").write_text(str(delivered))
            if ended:
                break
        lines.write(json.dumps({"stopped": ended or "as told"}) + "\n")


_HISTORY = "schema.history.internal.file.filename"


def _until(jpype: Any, properties: dict[str, str], lines: Any, delivered: int, count: int) -> tuple[int, str]:
    """Run the engine once; the number of records delivered in all, and why it ended by itself."""
    state = {"n": delivered, "ended": ""}
    done, heard = threading.Event(), threading.Event()

    @jpype.JImplements("io.debezium.engine.DebeziumEngine$ChangeConsumer")
    class Consumer:
        @jpype.JOverride
        def handleBatch(self, records: Any, committer: Any) -> None:  # noqa: N802 - the interface's name
            heard.set()
            for record in records:
                if done.is_set():
                    break
                line = record_line(record)
                lines.write(line + "\n")
                committer.markProcessed(record)
                state["n"] = int(state["n"]) + 1
                value = json.loads(line)["value"]
                if int(state["n"]) >= count and (value is None or value["payload"].get("op") in ("c", "u", "r")):
                    done.set()
            lines.flush()
            committer.markBatchFinished()

    @jpype.JImplements("io.debezium.engine.DebeziumEngine$CompletionCallback")
    class Completion:
        @jpype.JOverride
        def handle(self, success: bool, message: Any, error: Any) -> None:
            if not success:
                state["ended"] = f"{message} {error or ''}".strip()
            done.set()
            closed.set()

    closed = threading.Event()
    engine = json_engine(properties, Consumer(), Completion())
    executor = jpype.JClass("java.util.concurrent.Executors").newSingleThreadExecutor()
    executor.execute(engine)
    heard.wait(60)
    while not done.is_set():
        heard.clear()
        if not done.wait(0.2) and not heard.wait(QUIET_S):
            state["ended"] = state["ended"] or "end of the log"
            break
    if not closed.is_set():
        engine.close()
        closed.wait(60)
    executor.shutdown()
    return int(state["n"]), str(state["ended"])


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), json.loads(sys.argv[3]))
    os._exit(0)  # threads of the engine may linger
