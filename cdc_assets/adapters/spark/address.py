"""The address at which executors reach the driver.

Executors connect to the driver, not the other way round. With `127.0.0.1` the driver would wait for ever, because each
executor would try its own host. The right address is the one by which this machine reaches the cluster's master; a
connection to the master shows it, and also whether the master answers.
"""

import os
import re
import socket

from cdc_assets.errors import ConfigurationError

_REACH_S = 10.0
_DEFAULT_PORTS = {"spark": 7077, "k8s": 443, "sc": 15002}
_MASTER = re.compile(r"(spark|k8s|sc)://(?:https?://)?([^/;]+).*")
_PORT = re.compile(r":(\d+)$")


def endpoints(master: str) -> list[tuple[str, int]]:
    """Hosts and ports in the address of a master or a Connect server; none for `yarn` and local masters."""
    match = _MASTER.fullmatch(master)
    if not match:
        return []
    kind, hosts = match.groups()
    found = []
    for endpoint in hosts.split(","):
        port = _PORT.search(endpoint)
        host = _PORT.sub("", endpoint).strip("[]")
        found.append((host, int(port[1]) if port else _DEFAULT_PORTS[kind]))
    return found


def driver_address(master: str) -> str:
    """The address of this machine on the way to a cluster's master; empty to keep Spark's own choice.

    Raises:
        ConfigurationError: a standalone cluster's master, or a Connect server, does not answer.
    """
    problem = ""
    for endpoint in endpoints(master):
        try:
            with socket.create_connection(endpoint, _REACH_S) as connection:
                host = str(connection.getsockname()[0])
        except OSError as error:
            problem = str(error)
        else:
            return "" if "SPARK_LOCAL_IP" in os.environ else f"[{host}]" if ":" in host else host
    if problem and not master.startswith("k8s:"):  # which may be behind a proxy
        raise ConfigurationError(
            "address of Spark", master, "one that answers", f"start the cluster or correct the address ({problem})"
        )
    return ""
