"""Rights that a broker's authorizer refuses: which one is missing on what, and the command that gives it.

A missing right on one topic stops only that topic; the reason is reported. A missing right without which nothing can be published is
an error that is not retried: after the right is granted, publishing is started again and continues at the marker.
"""

from collections.abc import Sequence
from typing import Final

from cdc_assets.errors import PreflightError

NOT_AUTHORIZED: Final = (29, 30, 31, 53)
"""Kafka's numbers of errors for a topic, a group, the cluster and a transactional id."""


def grant_hint(operations: Sequence[str], resource: str, name: str) -> str:
    """The rights in words, and the command that gives them."""
    options = " ".join(f"--operation {operation.title()}" for operation in operations)
    rights, kind = " and ".join(operations), resource.replace("-", " ")
    return (
        f"{rights} on the {kind} {name} (kafka-acls --add --allow-principal User:<user> {options} --{resource} {name})"
    )


def no_write_permission(topic: str) -> str:
    """Why a topic is not published whose records are refused."""
    return f"the user may not write it: it needs {grant_hint(['WRITE'], 'topic', topic)}"


def no_create_permission(topic: str) -> str:
    """Why a topic is not published that cannot be seen and cannot be made."""
    return (
        "there is no such topic, or the user may not see it, and may not create it: "
        f"it needs {grant_hint(['CREATE', 'WRITE'], 'topic', topic)}"
    )


def permission_error(servers: str, what: str, operations: Sequence[str], resource: str, name: str) -> PreflightError:
    """Nothing can be published without these rights.

    Args:
        servers: brokers.
        what: is refused, as an infinitive.
        operations: that are needed, in capitals.
        resource: kind of what they are needed on, as `kafka-acls` names it.
        name: of the resource.
    """
    return PreflightError(
        f"Kafka at {servers} does not allow this user to {what}. Next: give {grant_hint(operations, resource, name)}, "
        "and start again; it continues where the marker says."
    )
