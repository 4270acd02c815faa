"""Which events of their topics mirrors still need, and how events identify rows: asked by what drops old events.

A mirror holds the events up to its LSN. A READ may still be committed at that very LSN (`steps`), never below it, so events strictly
below are not needed; of a mirror that is being rebuilt, all are.
"""

from collections.abc import Mapping
from dataclasses import replace

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.lake.events import TopicDescription
from cdc_assets.mirror.capture import CaptureMirrors, has_mirror
from cdc_assets.mirror.delta import MirrorTables, current_directory
from cdc_assets.mirror.ledger import MirrorLedger, MirrorState


class MirrorNeeds:
    """What mirrors need of their topics.

    Args:
        states: of the mirrors, by topic.
    """

    def __init__(self, tables: MirrorTables, states: Mapping[str, MirrorState]) -> None:
        self._tables, self._states = tables, states

    def below(self, topic: str) -> tuple[str, str]:
        """Commit LSN below which the mirror of a topic has every event, and why it is not further, for people; the LSN is empty
        if it may need any of them."""
        known = self._states.get(topic, MirrorState())
        if known.step == 0 or not self._exists(topic):
            return "", "its mirror does not exist yet"
        if known.gaps:
            return "", "its mirror lacks changes"
        if known.pending is not None and (known.pending.whole or known.pending.void):
            return "", "its mirror is being rebuilt"
        return known.lsn, f"its mirror is complete up to {known.lsn}"

    def since(self, topic: str) -> str:
        """Commit LSN before which events have no meaning for the mirror any more (`ledger.PlannedStep.since`); empty if all do."""
        return self._states.get(topic, MirrorState()).since

    def _exists(self, topic: str) -> bool:
        directory = current_directory(topic)
        return self._tables.leaves(directory) is not None and self._tables.schema(directory) is not None


class NeedsOfMirrors:
    """What the mirrors of a capture need, whenever it is asked.

    Args:
        runner: of the capture; no task is run.
    """

    def __init__(self, config: CaptureConfig, runner: TaskRunner, clock: Clock) -> None:
        self._config, self._runner, self._clock = config, runner, clock

    def has(self, table: TableId) -> bool:
        """Whether the settings give a table a mirror."""
        return has_mirror(self._config, table)

    def needs(self) -> MirrorNeeds:
        """What they need now.

        Raises:
            LakeError: it cannot be read.
        """
        mirrors = MirrorTables.of(self._config)
        return MirrorNeeds(mirrors, MirrorLedger(mirrors.tables, self._config.events.topic_prefix).read())

    def describe(self, table: TableId, topic: str) -> TopicDescription | str:
        """How events of a table are read as rows, also if it has no mirror; or why they do not identify rows.

        Raises:
            LakeError: the lake cannot be read.
        """
        found, troubles = CaptureMirrors(self._config, self._runner, self._clock).found(
            [table], only_keys=not self.has(table)
        )
        if not found:
            return str(troubles.get(topic, "it has no rows"))
        if (halt := found[0].halt) is not None:  # events after it have another key
            return str(halt)
        about, target = found[0].description, found[0].target
        if not about.shape.keyed:
            return "its table has no key"
        if not about.shape.own_key:
            return "its only key is the message key, and a statement may give a row the key that another row has until then"
        if target.altered and not target.reads_all:
            return f"its rows changed at {target.altered[-1]} without an event, and no snapshot reads all of them"
        return replace(about, altered=max(target.altered, default=""))
