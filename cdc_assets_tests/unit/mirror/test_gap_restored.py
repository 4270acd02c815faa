"""The clean-up job was too early, the database is restored to before its last pass, and its tables are read again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import MirrorSettings
from cdc_assets.core.lsn import Lsn
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.replicas import Replicas
from cdc_assets_tests.simulation.restoring import RestorableServer
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedBulk, SimulatedClock

TOPIC = f"shop.{DATABASE}.dbo.t"


class Bulk(SimulatedBulk):
    """There are no replicas."""

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True, left: Sequence[str] = ()) -> "Bulk":
        return self


class Server(RestorableServer):
    """Its clean-up job keeps nothing."""

    @property
    def bulk(self) -> Bulk:
        return Bulk(self)

    def forget(self) -> None:
        self.scan_all()
        self.clean_up(self.ends[DATABASE])


def test_a_loss_ends_where_the_table_was_read_again(tmp_path: Path) -> None:
    server = Server(replicas=Replicas(Random(1)), is_prompt=True)  # noqa: S311 - it lags behind nothing
    table = server.create("t", rows=2)
    config = replace(make_config(str(tmp_path)), mirror=MirrorSettings(enabled=True))
    mirrors = CaptureMirrors(config, LocalRunner(1), SimulatedClock(server))
    make_capture(server, config).snapshot()
    make_capture(server, config).stream()
    assert not mirrors.catch_up()
    server.commit((table, "delete", 1, ""))
    server.forget()
    backup = server.back_up(DATABASE)
    server.commit((table, "update", 2, "it is restored, too"))
    server.forget()
    make_capture(server, config).stream()
    assert state_of(config).tables[table].status == "gap"
    server.restore(backup)
    make_capture(server, config).snapshot([table])
    make_capture(server, config).stream()
    entry = state_of(config).tables[table]
    assert entry.status == "healthy"
    assert entry.snapshot_lsn is not None
    assert [until <= entry.snapshot_lsn for _, until in entry.gaps] == [True]
    assert not mirrors.catch_up()
    assert law.current_of(tmp_path, TOPIC, law.Files()) == Counter({(2, "old 2"): 1})
