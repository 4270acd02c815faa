"""What a command prints of log messages: each of ours once, a library's warnings too, and no trace of a JVM that is gone."""

import subprocess
import sys

_SPEAKS = """
import logging, socket, struct, threading
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError
from cdc_assets.cli.console import show_logs

def break_off(server: socket.socket) -> None:
    connection, _ = server.accept()
    server.close()
    connection.recv(1)  # the rest is unread, as of a process that is killed, so that the client is told of a reset
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()

show_logs()
show_logs()
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=break_off, args=(server,), daemon=True).start()
try:
    JavaGateway(gateway_parameters=GatewayParameters(port=server.getsockname()[1])).jvm.java.lang.System.gc()
except (Py4JError, OSError):
    logging.getLogger("cdc_assets.adapters.spark.jvm").warning("The JVM has ended.")
logging.getLogger("cdc_assets.capture.loop").warning("Ours.")
logging.getLogger("a.library").warning("Theirs.")
logging.warning("Without a name.")
"""


def test_messages_are_printed_once_though_a_jvm_breaks_off() -> None:
    done = subprocess.run([sys.executable, "-c", _SPEAKS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.splitlines() == ["The JVM has ended.", "Ours.", "Theirs.", "Without a name."]
