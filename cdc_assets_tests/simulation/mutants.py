"""Whether the world can fail: `python -m cdc_assets_tests.simulation.mutants [--seeds N] [--only TEXT]`.

Each mutant is the product with one thought left out: a fence that is not asked, a number that is not burnt, two commits in another
order. It is copied elsewhere, changed there, and histories are played until one fails. A mutant that no history finds says that the
world cannot express what the thought is for, or that nobody needs it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import cdc_assets


@dataclass(frozen=True)
class Mutant:
    """A change of the product.

    Args:
        what: what is left out or exchanged.
        path: file, below `cdc_assets`.
        before: text that is there once.
        after: text in its place.
    """

    what: str
    path: str
    before: str
    after: str


FIRST = 2

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
    ),
    Mutant(
        "the manifest does not fence",
        "ledger/fenced_log.py",
        "        except CommitFailedError:\n            written = self._found()\n",
        "        except CommitFailedError:\n            self._tables.forget(self.directory)\n"
        "            self._tables.append(self._tables.open(self.directory), [file], sequence, {})\n",
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
        "            if (written := self._found()) is None:\n                raise unreadable",
        "            if (written := None) is None:\n                raise unreadable",
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
        "a replacement's number is not asked",
        "lake/replacing.py",
        "            if wanted.number is not None and _reached(tables, handle, directory) >= wanted.number:\n                return False\n",
        "",
    ),
    Mutant(
        "a mirror's step is folded again though it was committed",
        "mirror/fold_step.py",
        "        if tables.reached(directory) >= number:\n            return\n",
        "",
    ),
    Mutant(
        "a mirror does not know that its step was planned",
        "mirror/apply.py",
        "        planned = state.pending\n        if planned is None",
        "        planned = None\n        if planned is None",
    ),
    Mutant(
        "an event at the end of the last step is taken again",
        "mirror/steps.py",
        "    return file.greatest[:LSN_WIDTH] == step.after and window_of(file, _NEVER) <= step.known\n",
        "    return False\n",
    ),
    Mutant(
        "a mirror does not forget what a gap has made wrong",
        "mirror/steps.py",
        "    lost = target.since > known.since\n",
        "    lost = False\n",
    ),
    Mutant(
        "a mirror publishes LSNs at which a snapshot was still reading",
        "mirror/steps.py",
        "        return outside(self.position, self.spans)\n",
        "        return self.position\n",
    ),
    Mutant(
        "what happened while a snapshot read is told at its own LSN",
        "mirror/rewrite.py",
        "        columns[at] = placed(lsns_of(column), spans) if name == POSITION else column\n",
        "        columns[at] = lsns_of(column) if name == POSITION else column\n",
    ),
    Mutant(
        "rows end in the log where the capture job was when they were read",
        "run/readings.py",
        "            moment.is_passed(moment.captured)\n",
        "            moment.target = moment.captured\n",
    ),
    Mutant(
        "a mark is an upper bound for the publisher",
        "publish/stream.py",
        "    if topic.numbered and is_behind and topic.rows.has_nothing(place, complete):",
        "    if topic.numbered and is_behind:",
    ),
    Mutant(
        "a stopped topic loses its place",
        "publish/publisher.py",
        "            if stream.name not in self.stopped:\n                self._places[stream.name] = max",
        "            if True:\n                self._places[stream.name] = max",
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
    ),
    Mutant(
        "retention does not wait for the publisher",
        "retention/drop.py",
        "            if limit.window is not None and about.window > limit.window:\n                break\n",
        "",
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
)


def _found(tree: Path, seeds: int) -> tuple[int, str] | None:
    """The first seed that fails, and how."""
    environment = os.environ | {
        "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'standin'}",
        "CDC_SIMULATE": f"{FIRST}:{FIRST + seeds}",
    }
    test = tree / "cdc_assets_tests" / "simulation" / "test_simulation.py"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line", str(test)]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if "Failed: seed " in line:
            number, _, how = line.partition("Failed: seed ")[2].partition(": ")
            return int(number), how
    return None if done.returncode == 0 else (-1, done.stdout[-400:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="histories until a mutant is given up")
    parser.add_argument("--only", default="", help="those whose description holds this text")
    options = parser.parse_args()
    root = Path(cdc_assets.__file__).parent.parent
    for mutant in MUTANTS:
        if options.only not in mutant.what:
            continue
        with tempfile.TemporaryDirectory() as folder:
            tree, begun = Path(folder), time.monotonic()
            for name in ("cdc_assets", "cdc_assets_tests", "standin"):
                shutil.copytree(root / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(root / "pyproject.toml", tree)
            path = tree / "cdc_assets" / mutant.path
            path.write_text(path.read_text().replace(mutant.before, mutant.after))
            found = _found(tree, options.seeds)
        told = "not found" if found is None else f"seed {found[0]}: {found[1][:110]}"
        print(f"| {mutant.what} | {mutant.path} | {told} | {time.monotonic() - begun:.0f} s |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
