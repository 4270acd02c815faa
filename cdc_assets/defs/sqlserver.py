"""The SQL Server of a capture as a Dagster resource, for sensors, checks, the capture's assets and your own assets.

`adapters.sqlserver` does the work and does not depend on Dagster.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import dagster as dg
import pyodbc
from pydantic import Field

from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.session import connect
from cdc_assets.adapters.sqlserver.source import SqlServerSource, quick_source
from cdc_assets.assembly.capture import discover
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.schema import TableSchema
from cdc_assets.defs.configuration import settings_of
from cdc_assets.history.drift import Drift
from cdc_assets.overview import CaptureOverview


class SqlServerCdcResource(dg.ConfigurableResource):  # type: ignore[type-arg] # the resource's value is the resource itself
    """A SQL Server with change data capture, reached over pyodbc.

    `build_definitions` and the component create one for each capture, as `<capture>_sqlserver`. It holds the path of a
    configuration file, or properties with unresolved placeholders, so that no secret appears on Dagster's pages.

    Example:
        An asset that sends the same server another query:

        >>> @dg.asset(required_resource_keys={"shop_sqlserver"})
        ... def open_transactions(context: dg.AssetExecutionContext) -> None:
        ...     server: SqlServerCdcResource = context.resources.shop_sqlserver
        ...     rows = server.query("SELECT session_id FROM sys.dm_tran_session_transactions")
        ...     context.add_output_metadata({"open": len(rows)})
    """

    config_file: str = Field(default="", description="Debezium connector properties: JSON, properties or YAML.")
    properties: dict[str, Any] = Field(
        default={}, description="The properties themselves, with secrets as ${env:NAME}."
    )

    def settings(self) -> CaptureConfig:
        """The capture's settings, read now, with placeholders resolved.

        Raises:
            ConfigurationError: the settings cannot be read or are invalid.
        """
        return settings_of(self.config_file, self.properties)

    def source(self) -> AbstractContextManager[SqlServerSource]:
        """The control plane, closed at the end of the block; with the time-outs of the settings."""
        return SqlServerSource.of(self.settings())

    def quick_source(self) -> AbstractContextManager[SqlServerSource]:
        """The control plane for code that must not hang, such as sensors; with time-outs of a few seconds."""
        return quick_source(self.settings())

    def bulk(self) -> MssqlBulkSource:
        """The data plane of the same server, for Spark tasks."""
        return MssqlBulkSource.of(self.settings())

    @contextmanager
    def connection(self) -> Iterator[pyodbc.Connection]:
        """A pyodbc connection in autocommit with the capture's time-outs, closed at the end of the block.

        Raises:
            CdcError: the server cannot be reached, or rejects the login.
        """
        link = connect(self.settings().connection)
        try:
            yield link.connection
        finally:
            link.close()

    def query(self, statement: str, *parameters: object) -> list[dict[str, object]]:
        """Rows of a statement's first result set, by column name; retried if the connection breaks.

        Args:
            statement: T-SQL with `?` for each parameter.
            parameters: values of the parameters, in order.

        Raises:
            CdcError: the server cannot be reached, or rejects the statement.
        """
        with self.source() as source:
            return source.session.named_rows(statement, *parameters)

    def tables(self) -> Sequence[TableSchema]:
        """Structures of the captured tables, read from the server now.

        Raises:
            CdcError: the server cannot be reached, or no table matches the filters.
        """
        return discover(self.settings())

    def drifts(self) -> Sequence[Drift]:
        """Differences between the tables on the server and the structure of their events, read now.

        Raises:
            CdcError: the server or the lake cannot be read.
        """
        config = self.settings()
        with quick_source(config) as source:
            return CaptureOverview(config, source).drifts()
