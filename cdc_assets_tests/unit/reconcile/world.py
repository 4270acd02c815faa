"""A server, its capture and mirrors, a comparison of both, and changes that the log does not record."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.reconcile.progress import Pass
from cdc_assets.reconcile.run import Reconciler, Wishes
from cdc_assets_tests.unit.signals.world import World as Signalled
from mssql_standin.control import StandIn


class World(Signalled):
    """A server with one table, its capture and its mirror."""

    def __init__(self, server: StandIn, lake: str, columns: str, rows: str, **events: Any) -> None:
        super().__init__(
            server, lake, columns="id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(max)"
        )
        self.config = replace(
            self.config,
            mirror=replace(self.config.mirror, settle_s=0.2),
            events=replace(self.config.events, **events),
            snapshot=replace(self.config.snapshot, partitions=6),
        )
        self.table = self.make("t", columns)
        self.sql(f"INSERT INTO dbo.t VALUES {rows}")
        server.agent.drain()
        self.run("snapshot")

    @property
    def topic(self) -> str:
        return f"shop.{self.table}"

    def mirrors(self) -> CaptureMirrors:
        return CaptureMirrors(self.config, LocalRunner(2), SystemClock())

    def change(self, statement: str) -> None:
        """A change that is captured and reaches the topic."""
        self.sql(statement)
        self.follow()

    def follow(self) -> None:
        self.server.agent.drain()
        self.run()

    def rows(self) -> list[str]:
        found = MirrorReader(self.mirrors().tables, self.topic).current().to_pylist()
        return sorted(repr({name: row[name] for name in row if not name.startswith("_")}) for row in found)

    def notes(self) -> list[str]:
        found: list[str] = MirrorReader(self.mirrors().tables, self.topic).current()["note"].to_pylist()
        return found

    def versions(self) -> list[dict[str, Any]]:
        """Versions that ended."""
        found: list[dict[str, Any]] = (
            DeltaTable(f"{self.config.lake.path}/{self.topic}.__history").to_pyarrow_table().to_pylist()
        )
        return found

    def on_server(self, names: str) -> list[str]:
        rows = self.server.execute(f"SELECT {names} FROM dbo.t", database=self.table.database)
        return sorted(repr(dict(zip(names.split(", "), row, strict=True))) for row in rows)

    @contextmanager
    def reconciler(self) -> Iterator[Reconciler]:
        with SqlServerSource(self.config.connection) as source:
            bulk = MssqlBulkSource(self.config.connection)
            yield Reconciler(self.config, source, bulk, LocalRunner(2), SystemClock(), self.mirrors())

    def reconcile(self, **wishes: Any) -> Pass:
        with self.reconciler() as reconciler:
            return reconciler.reconcile(self.table, Wishes(**wishes))

    def behind_the_log(self, statement: str) -> None:
        """Change rows of the table without the triggers that record it, as a partition that is switched out or in does."""
        with closing(self.server.engine.storage.connect()) as store:
            found = store.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in found:
                store.execute(f'DROP TRIGGER "{name}"')
            try:
                self.sql(statement)
            finally:
                for _, text in found:
                    store.execute(text)
