"""Messages of the engine's process are whole, whatever its threads do at that moment."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.connectors.debezium import child
from cdc_assets.connectors.debezium.frames import receive, send

BODY = b"a" * (8 << 20)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the process's end closes its socket
def test_an_error_is_told_behind_a_chunk_that_is_being_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk is sent by Debezium's thread, while the main thread fails."""
    ours, other = socket.socketpair()
    half = threading.Event()

    def fails(process: child.EngineProcess) -> None:
        threading.Thread(target=process.send_frame, args=({"kind": "chunk"}, BODY), daemon=True).start()
        half.wait(10)
        raise RuntimeError("no memory")

    monkeypatch.setattr(child, "start_java", lambda *_: None)
    monkeypatch.setattr(child.EngineProcess, "run", fails)
    send(ours, {"kind": "start", "folder": str(tmp_path), "heap": "", "log_level": ""})
    main = threading.Thread(target=child.main, args=(other.detach(),), daemon=True)
    main.start()
    first: Any = ours.recv(100, socket.MSG_PEEK)
    assert first
    half.set()
    main.join(0.3)  # time in which the error could come into the middle
    assert receive(ours) == ({"kind": "chunk"}, BODY)
    message, _ = receive(ours)
    assert message == {"kind": "stopped", "message": "RuntimeError: no memory", "failed": True}
    main.join(10)
    ours.close()
