"""The law of mirrors: at any LSN up to which a mirror is right, its versions are the rows that the server had.

Random statements change data, columns, capture instances and whole tables, while a capture and its mirrors run now and
then and die at a random step now and then. `CDC_MIRROR_SEEDS` plays more workloads than three.
"""

import contextlib
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.steps import listening
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets_tests.contract import follower
from cdc_assets_tests.contract.changing import Moment
from cdc_assets_tests.contract.follower import STATEMENTS, Follower
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.mirror.versions import check_versions
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

SEEDS = range(int(os.environ.get("CDC_MIRROR_SEEDS", "3")))
STEPS = 30
OF_MIRRORS = ["mirror", "rebuild"] + ["mirror_cut"] * 3


class MirroredFollower(Follower):
    """The capture with its mirrors; of what it claimed, that at which the mirrors are right."""

    def mirror(self, *, anew: bool = False) -> None:
        """Apply what is new."""
        troubles = CaptureMirrors(self.config, LocalRunner(2), SystemClock()).catch_up(anew=anew)
        assert not [error for error in troubles.values() if not anew or "cannot be rebuilt now" not in str(error)]
        if anew:  # what was before the newest loss is not in the topic's newest life
            kept = {topic.rpartition(".")[2] for topic in troubles}
            self.claims = {name: found if name in kept else found[-1:] for name, found in self.claims.items()}

    def rebuild(self) -> None:
        """Make the mirrors anew."""
        self.mirror(anew=True)

    def mirror_cut(self, step: int) -> None:
        """Apply what is new, and die at the n-th step if there are so many."""
        with listening(cut_after(step)), contextlib.suppress(PowerCutError):
            self.mirror()


def check(config: CaptureConfig, name: str, moments: list[Moment], right: list[tuple[Lsn, Lsn]], said: str) -> int:
    """Compare each moment at which a mirror is right with the server's rows then."""
    topic = f"shop.{DATABASE}.dbo.{name}"
    mirrors = CaptureMirrors(config, LocalRunner(1), SystemClock())
    state = mirrors.states()[topic]
    reader = MirrorReader(mirrors.tables, topic, state.lsn)
    check_versions(reader.versions().to_pylist(), said)
    checked = 0
    for moment in moments:
        if str(moment.lsn) >= state.begin and any(start < moment.lsn <= end for start, end in right):
            rows = {row["id"]: row for row in reader.as_of(moment.lsn).to_pylist()}
            about = f"{name} at {moment.lsn}\n{said}"
            assert rows.keys() == moment.rows.keys(), about
            for key, row in moment.rows.items():
                for column, since in moment.columns.items():
                    if since is None or moment.touched.get(key, ZERO_LSN) > since:
                        found = rows[key].get(column)
                        if found is None and moment.lsn <= right[-1][0]:
                            continue  # of an earlier life, whose column may have had a type that the newest one cannot hold
                        assert same(found, row[column]), f"{column} of {key}: {found!r}, not {row[column]!r}, {about}"
            checked += 1
    return checked


def same(found: Any, row: Any) -> bool:
    """Whether two values agree; a change of type in place also changes what was logged before it."""
    if isinstance(row, datetime) and isinstance(found, datetime):
        return abs((found - row).total_seconds()) < 0.001
    return follower.same(found, row)


@pytest.mark.law
@pytest.mark.parametrize("seed", SEEDS)
def test_mirrors_hold_what_the_server_had(fresh_server: StandIn, tmp_path: Path, seed: int) -> None:
    capture = MirroredFollower(fresh_server, tmp_path, seed)
    capture.play([*STATEMENTS, *OF_MIRRORS], STEPS)
    capture.mirror()
    checked = sum(
        check(capture.config, table.name, capture.tables.moments[table.name], capture.claims[table.name], capture.said)
        for table in capture.tables.tables
    )
    assert checked
