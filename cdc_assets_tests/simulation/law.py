"""The law, checked by a reader that shares no code with the product beyond reading Delta and the broker's memory."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets_tests.simulation.broker import Cluster
from cdc_assets_tests.simulation.restoring import RestorableServer
from cdc_assets_tests.simulation.server import captured_of, pair
from cdc_assets_tests.unit.streaming.simulation import Change


class Log:
    """The commits of a Delta table, each read once; nothing here removes any.

    Args:
        folder: of the table.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._version = -1
        self.files: dict[str, None] = {}
        """Files of the table now."""
        self.configuration: dict[str, str] = {}
        """Its properties now."""

    def read(self) -> None:
        """Read what was committed since."""
        while (path := self._folder / "_delta_log" / f"{self._version + 1:020d}.json").exists():
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            for action in actions:
                if "remove" in action:
                    self.files.pop(self._name(action["remove"]), None)
                if "metaData" in action:
                    self.configuration = action["metaData"]["configuration"]
            self.files |= {self._name(action["add"]): None for action in actions if "add" in action}
            self._version += 1

    def _name(self, file: Mapping[str, str]) -> str:
        return str(self._folder / unquote(file["path"]))


class Files:
    """Rows of files that were read before: files of a lake do not change, and topics are asked for often."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict]] = {}  # type: ignore[type-arg]
        self._logs: dict[Path, Log] = {}

    def log(self, folder: Path) -> Log:
        """The log of a table as it is now."""
        found = self._logs.setdefault(folder, Log(folder))
        found.read()
        return found

    def forget(self, folder: Path) -> None:
        """Read the log of a table again, which was shortened."""
        self._logs.pop(folder, None)

    def stamp(self, lake: Path, name: str) -> list[tuple[Path, str]]:
        """The tables of a topic, with the name of their newest commit."""
        return [(folder, _newest(folder)) for folder in _folders(lake, name)]

    def of(self, folder: Path) -> Iterator[dict]:  # type: ignore[type-arg]
        """Rows of a table now."""
        for path in self.log(folder).files:
            yield from self.rows(path)

    def rows(self, path: str) -> list[dict]:  # type: ignore[type-arg]
        if path not in self._rows:
            self._rows[path] = pq.ParquetFile(path).read().to_pylist()
        return self._rows[path]


def _newest(folder: Path) -> str:
    return max(found.name for found in os.scandir(folder / "_delta_log") if found.name.endswith(".json"))


def _folders(lake: Path, name: str) -> list[Path]:
    names = [found.name for found in os.scandir(lake)]
    return [lake / found for found in sorted(names) if found == name or found.startswith(f"{name}@")]


class Topic:
    """What one topic table holds now."""

    def __init__(self, lake: Path, name: str, files: Files) -> None:
        self.rows: list[dict] = []  # type: ignore[type-arg]
        for folder in _folders(lake, name):
            self.rows += files.of(folder)
        self.rows.sort(key=lambda row: row["position"])
        self.positions = [row["position"] for row in self.rows]

    def check_once(self, said: str) -> None:
        """No position is there twice."""
        seen = set[str]()
        twice = [at for at in self.positions if at in seen or seen.add(at)]  # type: ignore[func-returns-value]
        assert not twice, f"{said}: doubled {twice[:5]}"


def dropped_up_to(folder: Path, files: Files) -> str:
    """Commit LSN up to which a topic says that events were dropped; empty if none were."""
    return files.log(folder).configuration.get("cdc.completeAfter") or ""


Gaps = Sequence[tuple[Lsn, Lsn]]
"""Intervals of lost changes."""


def is_told(position: str, gaps: Gaps) -> bool:
    """Whether the commit of an event is marked as lost."""
    return any(after < Lsn.parse(position[:22]) <= until for after, until in gaps)


def changes_of(server: RestorableServer, table: TableId, after: Lsn, until: Lsn) -> list[str]:
    """Positions of the events of changes of a table within (after, until]; an update of the message key has those of a deletion, too."""
    found = []
    for change, later in pairwise([*server.history, None]):
        is_move = change.operation == 3 and later is not None and later.row["id"] != change.row["id"]
        if change.table == table and after < change.lsn <= until and (change.operation != 3 or is_move):
            place = place_of(change)
            found += [place, f"{place}t"] if change.operation == 1 or is_move else [place]
    return found


def fold(rows: list[dict], until: Lsn) -> dict[int, object]:  # type: ignore[type-arg]
    """Rows that events make, by key. Within a commit a row may get a key that another one has until it gets another one, too; so a key is
    there behind it if as many have come as have gone, or more."""
    found: dict[int, object] = {}
    for _, events in groupby(rows, lambda row: row["position"][:22]):
        counts = {}
        for row in events:
            value, key = row["value"], row["key"]["id"]
            if value is None or Lsn.parse(row["position"][:22]) > until:
                continue
            counts.setdefault(key, int(key in found))
            if value["op"] != "d":
                found[key] = value["after"]["note"]
            counts[key] = {"d": counts[key] - 1, "c": counts[key] + 1}.get(value["op"], 1)
        for key in [key for key, count in counts.items() if count < 1]:
            found.pop(key, None)
    return found


Reads = dict[tuple[Lsn, int, bool], Counter[tuple[int, object]]]
"""READs by LSN, number of the commit, and whether an incremental snapshot has made them."""


def reads_of(rows: list[dict]) -> Reads:  # type: ignore[type-arg]
    """All READs among events."""
    found: Reads = defaultdict(Counter)
    for row in rows:
        value = row["value"]
        if value is not None and value["op"] == "r":
            key = (Lsn.parse(row["position"][:22]), row["window_id"], value["source"]["snapshot"] == "incremental")
            found[key][value["after"]["id"], value["after"]["note"]] += 1
    return found


def reads_behind(topic: Topic, lsn: Lsn) -> set[str]:
    """Positions of the READs at later LSNs."""
    reads = [row["position"] for row in topic.rows if row["value"] is not None and row["value"]["op"] == "r"]
    return {position for position in reads if Lsn.parse(position[:22]) > lsn}


def check_reads(server: RestorableServer, table: TableId, reads: Reads) -> None:
    """READs of an incremental snapshot are rows at their LSN, all copies of them; those of a table without a key in any other
    snapshot are all rows at their LSN. They may have been read before a restore."""
    for (lsn, window, incremental), rows in reads.items():
        found = []
        for history in (server, *(past for past in server.pasts_of(table) if past.point <= lsn <= past.end)):
            had = history.rows_at(table, lsn)
            found.append(Counter({row: had[row] for row in rows if row in had}) if incremental else had)
        had = found[0]
        if incremental or table in server.keyless:
            assert rows in found, (
                f"{table}: READs of window {window} at {lsn} have {list((rows - had).items())[:3]} that the server had not, lack "
                f"{list((had - rows).items())[:3]}"
            )


def check_read_columns(server: RestorableServer, table: TableId, rows: list[dict]) -> None:  # type: ignore[type-arg]
    """A READ has the columns of the newest instance that had begun before its LSN, with the values of the change that made the row, but of
    those that were made anew since."""
    made = defaultdict[tuple[int, object], list[Change]](list)
    for change in server.history:
        if change.table == table and change.operation in (2, 4):
            made[pair(change.row)].append(change)
    present = {column.name for column in server.schemas[table].columns}
    for row in rows:
        value, lsn = row["value"], Lsn.parse(row["position"][:22])
        if value is None or value["op"] != "r" or any(past.point <= lsn <= past.end for past in server.pasts_of(table)):
            continue
        # An update may give a row the values that it has: what made it is the newest change before the READ.
        for change in [one for one in made.get(pair(value["after"]), ()) if one.lsn <= lsn][-1:]:
            same = columns_at(server, table, lsn) & columns_at(server, table, change.lsn)
            kept = captured_of(change.row, begun_at(server, table, lsn)[-1], server.numbers) if same else {}
            wanted = {
                name: found for name, found in kept.items() if found is not None and name in present & dict(same).keys()
            }
            had = {name: value["after"].get(name) for name in wanted}
            assert had == wanted, f"{table}: the READ at {row['position']} has {had}, the row had {wanted}"


def begun_at(server: RestorableServer, table: TableId, lsn: Lsn) -> list[CaptureInstance]:
    """Instances of a table that began before an LSN, the newest one last."""
    return [one for one in server.made if one.table == table and one.start_lsn < lsn]


def columns_at(server: RestorableServer, table: TableId, lsn: Lsn) -> set[tuple[str, int]]:
    """Names and ordinals of the columns of the newest of them."""
    return {
        named for one in begun_at(server, table, lsn)[-1:] for named in zip(one.columns, one.column_ids, strict=True)
    }


def check_published(cluster: Cluster, name: str, ever: set[str], said: str) -> None:
    """Each event there ever was is published once, in order."""
    found = [record.position for record in cluster.topics.get(name, ())]
    assert len(found) == len(set(found)), f"{said}: {name} is published twice: {_first_twice(found)}"
    places = [(record.window, record.position) for record in cluster.topics.get(name, ())]
    early = [later for before, later in pairwise(places) if later < before]
    assert not early, f"{said}: {name} is published in another order, from {early[0]} on"
    lacking = ever - set(found)
    assert not lacking, f"{said}: {name} lacks {sorted(lacking)[:5]}; marker {json.loads(cluster.marker or '{}')}"


def _first_twice(found: list[str]) -> str:
    seen = set[str]()
    for at in found:
        if at in seen:
            return at
        seen.add(at)
    return ""


Versions = Sequence[tuple[int, object, str, str]]
"""Key, note, and the interval of LSNs of each version."""


def versions_of(lake: Path, name: str, files: Files) -> Versions:
    """Key, note, and the interval [from, to) of LSNs of each version that a mirror holds; `~` is an open end."""
    now, then = files.of(lake / f"{name}.__current"), files.of(lake / f"{name}.__history")
    found = [(row["id"], row["note"], row["_lsn"], "~") for row in now]
    return found + [(row["id"], row["note"], row["_valid_from_lsn"], row["_valid_to_lsn"]) for row in then]


def check_columns(server: RestorableServer, table: TableId, rows: list[dict]) -> set[str]:  # type: ignore[type-arg]
    """A change has the columns of the newest instance that had begun when it was committed, with the values of the log.

    Returns:
        Positions of events of changes that the server does not have any more.
    """
    histories = [server, *server.pasts_of(table)]
    changes = [{place_of(change): change for change in one.history if change.table == table} for one in histories]
    lost = set[str]()
    for row in rows:
        value, place = row["value"], row["position"]
        if value is None and place.removesuffix("t") not in changes[0]:
            lost.add(place)
        if value is None or value["op"] not in ("c", "u", "d"):
            continue
        logged = []
        for history, known in zip(histories, changes, strict=True):
            if (change := known.get(place)) is not None:
                deleted = {name: change.row.get(name) for name in ("id", "note")}
                logged.append((history, deleted if value["op"] == "d" else history.kept(change)))
        image = value["before" if value["op"] == "d" else "after"]
        fitting = [one for one, wanted in logged if {name: image.get(name) for name in wanted} == wanted]
        assert fitting, f"{table}: the event at {place} has {image}, logged was {[wanted for _, wanted in logged]}"
        if server not in fitting:
            lost.add(place)
    return lost


def place_of(change: Change) -> str:
    """Position of a change's event."""
    return f"{change.lsn}/{change.command:08x}/{change.seqval}/{change.operation}"


def current_of(lake: Path, name: str, files: Files) -> Counter[tuple[int, object]]:
    """Rows that a mirror has now."""
    return Counter((row["id"], row["note"]) for row in files.of(lake / f"{name}.__current"))


def published_of(lake: Path, files: Files) -> Iterator[tuple[str, str, str]]:
    """Topics, LSNs at which their mirrors have said lately that they are right and lack no changes, and since which LSN."""
    folder = lake / "shop.__mirrors"
    if not (folder / "_delta_log").exists():
        return
    for row in files.of(folder):
        for name, state in json.loads(row["detail"]).items():
            if state["step"] and not state["gaps"]:
                yield name, state["lsn"], state["begin"]


def check_mirror(
    server: RestorableServer, versions: Versions, table: TableId, published: list[str], said: str, gaps: Gaps = ()
) -> None:
    """At each published LSN a mirror is the table then; within lost changes, as it was before the restore.

    Args:
        versions: rows of the mirror.
        published: LSNs at which the mirror has said that it is right.
    """
    for text in published:
        valid = [(key, note) for key, note, start, end in versions if start <= text < end]
        lsn = Lsn.parse(text)
        rows = server.rows_at(table, lsn)
        if any(after < lsn <= until for after, until in gaps) and any(
            past.point <= lsn <= past.end and Counter(valid) == past.rows_at(table, lsn)
            for past in server.pasts_of(table)
        ):
            continue
        assert Counter(valid) == rows, (
            f"{said}: the mirror at {text} has {sorted(Counter(valid) - rows)[:3]} that the server had not, lacks "
            f"{sorted(rows - Counter(valid))[:3]}, {len(valid)} versions for {rows.total()} rows"
        )
