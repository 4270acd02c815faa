"""The law, checked by a reader that shares no code with the product beyond reading Delta and the broker's memory."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets_tests.simulation.broker import Cluster
from cdc_assets_tests.simulation.server import LaggingServer


class Topic:
    """What one topic table holds now."""

    def __init__(self, lake: Path, name: str) -> None:
        self.rows: list[dict] = []  # type: ignore[type-arg]
        for folder in sorted(lake.glob(f"{name}*")):
            if folder.name == name or folder.name.startswith(f"{name}@"):
                for file in DeltaTable(str(folder)).file_uris():
                    self.rows += pq.read_table(file).to_pylist()
        self.rows.sort(key=lambda row: row["position"])
        self.positions = [row["position"] for row in self.rows]

    def check_once(self, said: str) -> None:
        """No position is there twice."""
        seen = set[str]()
        twice = [at for at in self.positions if at in seen or seen.add(at)]  # type: ignore[func-returns-value]
        assert not twice, f"{said}: doubled {twice[:5]}"


def changes_of(server: LaggingServer, table: TableId, after: Lsn, until: Lsn) -> list[str]:
    """Positions of the events of changes of a table within (after, until]."""
    found = []
    for change in server.history:
        if change.table == table and after < change.lsn <= until and change.operation != 3:
            place = f"{change.lsn}/{change.command:08x}/{change.seqval}/{change.operation}"
            found += [place, f"{place}t"] if change.operation == 1 else [place]
    return found


def fold(rows: list[dict], until: Lsn) -> dict[int, object]:  # type: ignore[type-arg]
    """Rows that events make, by key."""
    found: dict[int, object] = {}
    for row in rows:
        value = row["value"]
        if value is None or Lsn.parse(row["position"][:22]) > until:
            continue
        if value["op"] == "d":
            found.pop(row["key"]["id"], None)
        else:
            found[row["key"]["id"]] = value["after"]["note"]
    return found


def check_published(cluster: Cluster, name: str, ever: set[str], said: str) -> None:
    """Each event there ever was is published once, in order."""
    found = [record.position for record in cluster.topics.get(name, ())]
    assert len(found) == len(set(found)), f"{said}: {name} is published twice: {_first_twice(found)}"
    lacking = ever - set(found)
    assert not lacking, f"{said}: {name} lacks {sorted(lacking)[:5]}; marker {json.loads(cluster.marker or '{}')}"


def _first_twice(found: list[str]) -> str:
    seen = set[str]()
    for at in found:
        if at in seen:
            return at
        seen.add(at)
    return ""


def versions_of(lake: Path, name: str) -> list[tuple[int, object, str, str]]:
    """Key, note, and the interval [from, to) of LSNs of each version that a mirror holds; `~` is an open end."""
    now = DeltaTable(str(lake / f"{name}.__current")).to_pyarrow_table().to_pylist()
    then = DeltaTable(str(lake / f"{name}.__history")).to_pyarrow_table().to_pylist()
    found = [(row["id"], row["note"], row["_lsn"], "~") for row in now]
    return found + [(row["id"], row["note"], row["_valid_from_lsn"], row["_valid_to_lsn"]) for row in then]


def published_of(lake: Path) -> Iterator[tuple[str, str, str]]:
    """Topics, LSNs at which their mirrors have said lately that they are right and lack no changes, and since which LSN."""
    folder = lake / "shop.__mirrors"
    if not (folder / "_delta_log").exists():
        return
    for row in DeltaTable(str(folder)).to_pyarrow_table().to_pylist():
        for name, state in json.loads(row["detail"]).items():
            if state["step"] and not state["gaps"]:
                yield name, state["lsn"], state["begin"]


def check_mirror(server: LaggingServer, lake: Path, table: TableId, name: str, published: list[str], said: str) -> None:
    """At each published LSN a mirror is the table then.

    Args:
        published: LSNs at which the mirror has said that it is right.
    """
    versions = versions_of(lake, name)
    for text in published:
        valid = [(key, note) for key, note, start, end in versions if start <= text < end]
        rows = server.rows_at(table, Lsn.parse(text))
        assert sorted(valid) == sorted(rows.items()), (
            f"{said}: the mirror at {text} has {sorted(set(valid) - set(rows.items()))[:3]} that the server had not, lacks "
            f"{sorted(set(rows.items()) - set(valid))[:3]}, {len(valid)} versions for {len(rows)} rows"
        )
