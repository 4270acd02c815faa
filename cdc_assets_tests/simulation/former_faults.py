"""Severe faults that were found by reading an earlier state of the product, each put back into the product as it is; see `mutants`.

Only those that a world can meet: others need settings that change within a history, types that its tables do not have, a lake that
loses files, a readable secondary, a restored database, or Dagster.
"""

from typing import Final

from cdc_assets_tests.simulation.safeguards import Mutant

FORMER_FAULTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        "A1: changes of a capture instance whose name was used before are decoded with the former structure",
        "history/store.py",
        "        matching = [entry for entry in newest if entry.identity == instance]\n",
        "        matching = [entry for entry in newest if entry.instance == (instance.name if instance else None)]\n",
    ),
    Mutant(
        "A2: a table that has stopped and is read again loses what was committed since, and nothing tells it",
        "ledger/table_state.py",
        "        return self.goes_on or whole\n",
        "        return self.streams or whole\n",
        (("snapshot/run.py", "if table.instance and since is not None and since < table.low:", "if False:"),),
    ),
    Mutant(
        "A3: READs of a first snapshot that was given up stay, and changes between them and the next one are read by nobody",
        "snapshot/plan.py",
        "taken_up or start",
        "start",
        (("ledger/state.py", "            return early.low\n", "            return None\n"),),
    ),
    Mutant(
        "A6: a woken writer commits a table that its successor has left out",
        "lake/topics.py",
        "        return self._once(directory, window_id, opened, (), left_out) or not self.committed(directory, window_id)\n",
        "        return bool(left_out) and not self.committed(directory, window_id)\n",
    ),
    Mutant(
        "A7: structures of a snapshot whose number was overtaken are never written",
        "snapshot/structures.py",
        "if new and number + 1 == manifest.state.next_window and not history.is_closed(number):",
        "if new:",
        (
            (
                "history/store.py",
                '        if new:\n            step("history-recorded")\n',
                '        if True:\n            step("history-recorded")\n',
            ),
        ),
    ),
    Mutant(
        "A11: a capture that has lost changes by consent is healthy",
        "overview/report.py",
        "            if table.lacks:\n",
        "            if False and table.lacks:\n",
    ),
    Mutant(
        "A12: an unchanged row of a table without a key is not read, since another one is alike",
        "incremental/staging.py",
        "        self.is_any_useless = not task.unique\n",
        "        self.is_any_useless = False\n",
    ),
    Mutant(
        "J1: mirrors skip events while another database holds the number back",
        "mirror/capture.py",
        "    complete, run = state.complete_window_of(table.database), state.snapshots.get(table.database)\n",
        "    complete, run = state.complete_window, state.snapshots.get(table.database)\n",
    ),
    Mutant(
        "J2: a window is read again that was committed by a capture instance whose structure was not recorded",
        "streaming/structures.py",
        "            known = self._lake.history.of_instance(read.table, read.identity, read.after.next())\n",
        "            known = self._lake.history.of_instance(read.table, read.identity, read.after.next())\n"
        "            latest = self._lake.history.latest(read.table)\n"
        "            instance = instance_of(read, instances.get(read.table, []))\n"
        "            if known is None and latest is not None and instance and latest.captured == instance.columns:\n"
        "                known = latest\n",
        (
            (
                "shared/endings.py",
                "        if read.directory and is_committed(read.directory):\n",
                "        is_recorded = lake.history.of_instance(read.table, read.identity) is not None\n"
                "        if is_recorded and read.directory and is_committed(read.directory):\n",
            ),
        ),
    ),
    Mutant(
        "M1: a mirror that cannot follow is told to be as far as its topic",
        "mirror/apply.py",
        "            works = [work for work in found if isinstance(work, Work)]\n            idle = dict(",
        "            stays = [\n"
        "                (one.topic, self._moved(one, max(self._state(one.topic).lsn, one.target.position), one.target.window))\n"
        "                for one in left\n"
        "                if one.topic in troubles and self._state(one.topic).step and self._state(one.topic).pending is None\n"
        "            ]\n"
        "            found += stays\n"
        "            works = [work for work in found if isinstance(work, Work)]\n            idle = dict(",
    ),
    Mutant(
        "P1: READs of a new table are not published, since the publisher learns of it when its number has passed",
        "publish/feed.py",
        "    yield from state.early\n    for run in state.snapshots.values():\n"
        "        yield from (entry.table for entry in run.tables)\n",
        "",
    ),
    Mutant(
        "E1: the place of a connector goes back over events that it repeats",
        "connectors/engine/staging.py",
        "        self._position = last_position(new) or self._position\n        self._boundary = last_boundary(new) or self._boundary\n",
        "        self._position = last_position(found) or self._position\n        self._boundary = last_boundary(found) or self._boundary\n",
    ),
    Mutant(
        "D1: a topic whose commit was found, not made, is passed over by the publisher",
        "lake/topics.py",
        "        if held is None or held.window < reached:\n            self._hold(",
        "        if False:\n            self._hold(",
        (
            (
                "publish/cursor.py",
                "    if topic.numbered and is_behind and topic.rows.has_nothing(offset, complete):",
                "    if topic.numbered and is_behind:",
            ),
        ),
    ),
    Mutant(
        "D2: a topic that is stopped loses its place when the attempt is repeated",
        "publish/publisher.py",
        "            self._places.setdefault(topic.name, self._published.of(topic.name, numbered=topic.numbered))\n",
        "            if topic.name in self.stopped:\n                self._places.pop(topic.name, None)\n                continue\n"
        "            self._places.setdefault(topic.name, self._published.of(topic.name, numbered=topic.numbered))\n",
    ),
    Mutant(
        "D4: files that another writer has replaced meanwhile are replaced once more",
        "lake/replacing.py",
        "    if gone := [path for path in paths if path not in live]:",
        "    paths = [path for path in paths if path in live]\n    if gone := [path for path in paths if path not in live]:",
    ),
    Mutant(
        "D5: the history of a mirror is joined by two writers",
        "mirror/capture.py",
        "            fence = self._ledger.require_writer\n",
        "            fence = partial(len, ())\n",
    ),
    Mutant(
        "review A4: a table without a key is read at one moment, and placed where the capture job was",
        "snapshot/moment.py",
        "        if self._deletes:\n            self._delete(column)\n        return found\n",
        "        if self._deletes:\n            self._delete(column)\n        return self._after\n",
    ),
    Mutant(
        "review A5: a mirror publishes LSNs at which a snapshot was still reading",
        "mirror/steps.py",
        "        return outside(self.position, self.spans)\n",
        "        return self.position\n",
        (
            (
                "mirror/steps.py",
                "    end = outside(target.position, target.spans_since(known.since))\n",
                "    end = target.position\n",
            ),
        ),
    ),
    Mutant(
        "N1: a file that was renamed is read again",
        "connectors/reader/files.py",
        "            elif old is not None:\n",
        "            elif False:\n",
    ),
)
