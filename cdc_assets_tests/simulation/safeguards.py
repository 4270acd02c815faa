"""What mutants leave out: one thought of the product each; see `mutants`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A change of the product.

    Args:
        what: what is left out or exchanged.
        path: file, below `cdc_assets`.
        before: text that is there once.
        after: text in its place.
        also: path, text and other text of a second place that holds the same thought.
    """

    what: str
    path: str
    before: str
    after: str
    also: tuple[tuple[str, str, str], ...] = ()

    @property
    def edits(self) -> tuple[tuple[str, str, str], ...]:
        """Path, text and other text of each place."""
        return ((self.path, self.before, self.after), *self.also)


MUTANTS = (
    Mutant(
        "a window is committed again though the table has its number",
        "lake/topics.py",
        "            if handle is None or self._is_taken(handle, directory, window_id):\n                return False\n            if new",
        "            if handle is None:\n                return False\n            if new",
    ),
    Mutant(
        "a number that is left out is not burnt",
        "lake/topics.py",
        '        left_out = {"window_id": str(window_id), "left_out": "true"}\n',
        '        return not self.committed(directory, window_id)\n        left_out = {"window_id": str(window_id), "left_out": "true"}\n',
    ),
    Mutant(
        "a commit that is found leaves no mark",
        "lake/topics.py",
        "        if held is None or held.window < reached:",
        "        if False and (held is None or held.window < reached):",
        (
            (
                "publish/cursor.py",
                "    if topic.numbered and is_behind and topic.rows.has_nothing(offset, complete):",
                "    if topic.numbered and is_behind:",
            ),
        ),
    ),
    Mutant(
        "the manifest does not fence",
        "ledger/fenced_log.py",
        "        except CommitFailedError:\n            written = self._found()\n",
        "        except CommitFailedError:\n            self._tables.forget(self.directory)\n"
        "            self._tables.append_files(self._tables.open(self.directory), [file], sequence, {})\n",
    ),
    Mutant(
        "nobody asks whether another writer has taken over",
        "ledger/fenced_log.py",
        "        sequence = self.next_sequence - 1\n        location, version",
        "        return\n        sequence = self.next_sequence - 1\n        location, version",
    ),
    Mutant(
        "a row whose answer was lost is taken for another writer's",
        "ledger/fenced_log.py",
        "            if (written := self._found()) is None:\n"
        "                raise unreadable(self._tables.location.uri(self.directory), error) from error\n",
        "            written = None\n",
    ),
    Mutant(
        "files that are gone are removed once more",
        "lake/replacing.py",
        "    if gone := [path for path in paths if path not in live]:",
        "    paths = [path for path in paths if path in live]\n    if gone := [path for path in paths if path not in live]:",
    ),
    Mutant(
        "files are replaced though another writer has taken over",
        "lake/replacing.py",
        '            step("replacement-checked")\n            fence()\n',
        '            step("replacement-checked")\n',
    ),
    Mutant(
        "rows of a mirror are committed before the versions that ended",
        "mirror/fold_step.py",
        "[[history], [current]]",
        "[[current], [history]]",
    ),
    Mutant(
        "a mirror's step is folded again though it was committed",
        "mirror/fold_step.py",
        "        if tables.reached(directory) >= number:\n            return\n",
        "",
        (
            (
                "lake/replacing.py",
                "            if wanted.number is not None and _reached(tables, handle, directory) >= wanted.number:\n"
                "                return False\n",
                "",
            ),
        ),
    ),
    Mutant(
        "a mirror does not know that its step was planned",
        "mirror/apply.py",
        "        key, planned = table.description.shape.key_text, state.pending\n",
        "        key, planned = table.description.shape.key_text, None\n",
    ),
    Mutant(
        "an event at the end of a step is left to the next one, which begins behind it",
        "lake/events.py",
        "pc.less_equal(positions, self.until + _AFTER_LSN)",
        "pc.less(positions, self.until)",
    ),
    Mutant(
        "a mirror does not forget what a gap has made wrong",
        "mirror/steps.py",
        "    lost = target.since > known.since\n",
        "    lost = False\n",
    ),
    Mutant(
        "what happened while a snapshot read is told at its own LSN",
        "mirror/rewrite.py",
        "            column = placed(column, spans)\n",
        "",
    ),
    Mutant(
        "rows end in the log where the capture job was when they were read",
        "capture/readings.py",
        "            moment.is_passed(moment.captured)\n",
        "            moment.target = moment.captured\n",
    ),
    Mutant(
        "a stopped topic loses its place",
        "publish/publisher.py",
        "            if cursor.name not in self.stopped:\n                self._places[cursor.name] = max",
        "            if True:\n                self._places[cursor.name] = max",
    ),
    Mutant(
        "a refused transaction is committed",
        "publish/publisher.py",
        "            raise _Refused\n        self._published = marker\n",
        "        self._published = marker\n",
    ),
    Mutant(
        "a publisher goes on from its memory when the broker is opened again",
        "publish/publisher.py",
        "        known = found or start.first()\n",
        "        known = self._published if self._published.lake else found or start.first()\n",
    ),
    Mutant(
        "a window is published though one before it is not complete",
        "ledger/state.py",
        "        for window in self.pending:\n            what",
        "        for window in ():\n            what",
    ),
    Mutant(
        "retention does not wait for mirrors",
        "retention/drop.py",
        "            about = newest_in(self._tables.location, file) if limit.allows(file.until) else None\n",
        "            about = newest_in(self._tables.location, file)\n",
        (("retention/step.py", "limit.allows(found.after) and is_published", "is_published"),),
    ),
    Mutant(
        "retention does not wait for the publisher",
        "retention/drop.py",
        "            if limit.window is not None and about.window > limit.window:\n                break\n",
        "",
        (("retention/step.py", "limit.allows(found.after) and is_published", "limit.allows(found.after)"),),
    ),
    Mutant(
        "a lost answer of a replacement is taken for a failure",
        "lake/replacing.py",
        "        if _was_made(tables, directory, version, own):\n            return True\n",
        "",
    ),
    Mutant(
        "a gap is not told",
        "streaming/gaps.py",
        "        return dataclasses.replace(marked, position=gap.until, ignored_gaps=ignored)\n",
        "        return dataclasses.replace(state, position=gap.until)\n",
    ),
    Mutant(
        "a round of a snapshot that is recorded is read again",
        "snapshot/round_step.py",
        "        recorded = self._ledger.state.written\n",
        "        recorded = None\n",
    ),
    Mutant(
        "rows that changed while a round was read become READs",
        "incremental/snapshot.py",
        "        reads = self.reader.build(current, changed, table.position)\n",
        "        reads = self.reader.build(current, (), table.position)\n",
    ),
    Mutant(
        "changes that the clean-up job has removed while a round was read are taken for none",
        "incremental/changed.py",
        "    if mark is None or mark > after.next():\n",
        "    if mark is None:\n",
    ),
    Mutant(
        "a restore that takes the newest transaction alone is no restore",
        "shared/forks.py",
        "if reached >= fork.point else []",
        "if reached > fork.point else []",
    ),
    Mutant(
        "a server that was put back on its fork is not noticed",
        "shared/forks.py",
        "return ZERO_LSN if is_less else None",
        "return None",
    ),
    Mutant(
        "a secondary that did not follow a forced failover is asked",
        "ledger/state.py",
        'former=tuple(one for one in left if one not in ("", fork))',
        "former=()",
    ),
    Mutant(
        "a page believes a secondary that has less of the log than was read",
        "overview/server.py",
        "(not restored and captured_until(state, database)) or ZERO_LSN",
        "ZERO_LSN",
    ),
    Mutant(
        "a secondary that lags is asked for capture instances",
        "shared/server.py",
        "self.source.capture_instances(database, known)",
        "self.source.capture_instances(database)",
    ),
    Mutant(
        "a snapshot knows only the instances from before it began",
        "snapshot/plan.py",
        "            instances = self._server.instances(database, known=low)\n",
        "            pass\n",
    ),
    Mutant(
        "a mirror before a span waits for a change of structure that it goes over",
        "mirror/altered.py",
        "lsn < outside(end, spans)",
        "lsn < outside(end, target.spans)",
    ),
    Mutant(
        "a new lake is published behind a former one",
        "publish/start.py",
        "    if not continued and known.lake == lake and known.window",
        "    if not continued and known.window",
    ),
    Mutant(
        "what another reader has delivered of a transaction is captured again",
        "adoption/plan.py",
        "else self._adopted(schemas[table], instances[table], position, starts.get(table))",
        "else self._adopted(schemas[table], instances[table], position, None)",
    ),
    Mutant(
        "a round does not wait for its close marker",
        "incremental/snapshot.py",
        "current.closed is None or not current.closing:\n            return False\n        if table.position < current.closed or state.pending:",
        "state.pending:",
    ),
    Mutant(
        "windows are planned before recorded READs are committed",
        "capture/loop.py",
        "        self._incremental.recover(database)\n",
        "",
    ),
    Mutant(
        "READs of a round are not recorded before they are committed",
        "incremental/snapshot.py",
        "            self._watch.record(database, dataclasses.replace(signals, reads=reads))\n",
        "",
    ),
    Mutant(
        "a row of the signal table is read, and not carried out",
        "signals/watch.py",
        "        if outcome.acted or is_reported:\n",
        "        if outcome.acted and is_reported:\n",
    ),
    Mutant(
        "a table without a key is read where the capture job was",
        "snapshot/moment.py",
        "        if self._deletes:\n            self._delete(column)\n        return found\n",
        "        if self._deletes:\n            self._delete(column)\n        return self._after\n",
    ),
    Mutant(
        "a table without a key is read without locks",
        "snapshot/readers.py",
        "                found = self._freely(placed, slices)\n                locks.check()\n",
        "            found = self._freely(placed, slices)\n",
    ),
    Mutant(
        "of rows that are alike one may have changed while they were read",
        "incremental/staging.py",
        "        self.is_any_useless = not task.unique\n",
        "        self.is_any_useless = False\n",
    ),
    Mutant(
        "a comparison does not wait for the mirror",
        "reconcile/run.py",
        "        self._wait(table, wishes)\n        return settled",
        "        return settled",
    ),
    Mutant(
        "a comparison does not look for what is in flight",
        "reconcile/run.py",
        "            found = self._settled(table, since, found, wishes)\n",
        "",
    ),
    Mutant(
        "rows that the server lacks are not removed",
        "reconcile/run.py",
        "                removed = self._mirrors.remove(table, since, keys, found.subject.window)\n",
        "                removed = keys.num_rows\n",
    ),
    Mutant(
        "a connector's repeated events are not dropped",
        "connectors/engine/run.py",
        "        if self._habits.repeats:\n",
        "        if False:\n",
    ),
    Mutant(
        "a connector is told of a batch before it is committed",
        "connectors/engine/run.py",
        "        begun = time.monotonic()\n        self._nulled.clear()\n",
        "        begun = time.monotonic()\n        feed.committed(staging.chunk)\n        self._nulled.clear()\n",
    ),
    Mutant(
        "a batch that was planned is not finished",
        "connectors/engine/run.py",
        "            self._carry_out(state.pending, is_recorded=True)\n",
        "            self._complete(state.pending)\n",
    ),
    Mutant(
        "a row does not give way to another one that gets its key in the same commit",
        "mirror/fold.py",
        "        if not shape.own_key:\n            self._give_way(void, doubt)\n",
        "",
    ),
    Mutant(
        "tables of a mirror are not compared with the record while a step is in flight",
        "mirror/audit.py",
        "        if (state := states.get(topic)) is not None\n",
        "        if (state := states.get(topic)) is not None and state.pending is None\n",
    ),
    Mutant(
        "a topic continues of which events were dropped before its files were listed",
        "publish/publisher.py",
        "                reason := self._dropped(self._feed.with_holds(topic))\n",
        '                reason := ""\n',
    ),
)
