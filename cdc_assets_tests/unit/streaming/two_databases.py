"""A simulated server with two databases."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets_tests.unit.streaming.captures import make_config
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedServer, plain_schema

OTHER = "Other"


class TwoDatabases(SimulatedServer):
    """`SalesDb` and `Other`; their LSNs come from one counter, and each has its own transactions."""

    def databases(self) -> Sequence[str]:
        return [DATABASE, OTHER]

    def create_other(self, name: str, rows: int = 0) -> TableId:
        """A captured table of the other database."""
        table = TableId(OTHER, "dbo", name)
        self.schemas[table] = replace(plain_schema(name, 2000 + len(self.schemas)), table=table)
        self.rows[table] = {key: {"id": key, "note": f"old {key}"} for key in range(1, rows + 1)}
        self.enable(table, f"other_{name}")
        return table

    def user_tables(self, database: str) -> Sequence[TableId]:
        return sorted(table for table in self.schemas if table.database == database)

    def capture_instances(self, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        return [found for found in super().capture_instances(database, known) if found.table.database == database]

    def low_water_marks(self, database: str) -> Mapping[str, Lsn]:
        return {instance.name: instance.start_lsn for instance in self.instances}

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        own = {change.lsn for change in self.history if change.table.database == database}
        found = [lsn for lsn in self.transactions if lsn in own and (after is None or lsn > after)]
        found = found[:limit] if limit else found
        return found[-1] if found else None


def config_of_two(path: Path, **changes: object) -> CaptureConfig:
    """Settings that capture both databases."""
    config = make_config(str(path), **changes)
    return replace(config, connection=replace(config.connection, databases=(DATABASE, OTHER)))
