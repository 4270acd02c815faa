"""SQL Server's change data capture as a Dagster resource.

The work is done by `cdc_assets.adapters.sqlserver.source` and `cdc_assets.adapters.sqlserver.bulk`, which know nothing of Dagster.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Self

from dagster import ConfigurableResource
from pydantic import Field

from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.kinds import LONGEST_MS
from cdc_assets.config.settings import ConnectionSettings

__all__ = ["SqlServerResource", "SqlServerSource"]


class SqlServerResource(ConfigurableResource):  # type: ignore[type-arg] # hands out itself, not another type
    """How a Dagster deployment reaches SQL Server. Give secrets as `EnvVar("NAME")`."""

    host: str = Field(description="Address of the server.")
    user: str = Field(default="", description="SQL Server login.")
    password: str = Field(default="", description="Its password; use EnvVar.")
    databases: list[str] = Field(description="Databases to capture.")
    port: int | None = Field(
        default=None, ge=1, le=65535, description="TCP port; 1433, or for an instance what its server tells."
    )
    instance: str = Field(default="", description="Named instance.")
    encrypt: Literal["no", "yes", "strict"] = Field(default="yes", description="Encryption of the connection.")
    trust_server_certificate: bool = Field(default=False, description="Accept any certificate.")
    query_timeout_s: int = Field(
        default=600, ge=0, le=LONGEST_MS // 1000 + 1, description="Time limit of a statement in seconds; 0 is none."
    )
    login_timeout_s: int = Field(
        default=15, ge=1, le=LONGEST_MS // 1000 + 1, description="Time limit of a login in seconds."
    )
    application: str = Field(default="cdc-assets", description="Name that the server shows for our sessions.")
    options: dict[str, str] = Field(default={}, description="Further ODBC keywords.")
    agent_status_query: str = Field(default="", description="T-SQL giving 1 if the Agent runs.")

    @classmethod
    def of(cls, settings: ConnectionSettings, agent_status_query: str = "") -> Self:
        """The resource for settings read from a configuration file."""
        return cls(
            host=settings.host,
            user=settings.user,
            password=settings.password,
            databases=list(settings.databases),
            port=settings.port,
            instance=settings.instance,
            encrypt=settings.encrypt,
            trust_server_certificate=settings.trust_server_certificate,
            query_timeout_s=settings.query_timeout_s,
            login_timeout_s=settings.login_timeout_s,
            application=settings.application,
            options=dict(settings.extra),
            agent_status_query=agent_status_query,
        )

    def settings(self) -> ConnectionSettings:
        """The connection settings."""
        return ConnectionSettings(
            host=self.host,
            user=self.user,
            password=self.password,
            databases=tuple(self.databases),
            port=self.port,
            instance=self.instance,
            encrypt=self.encrypt,
            trust_server_certificate=self.trust_server_certificate,
            query_timeout_s=self.query_timeout_s,
            login_timeout_s=self.login_timeout_s,
            application=self.application,
            extra=tuple(self.options.items()),
        )

    @contextmanager
    def source(self) -> Iterator[SqlServerSource]:
        """A source that is closed at the end of the block."""
        with SqlServerSource(self.settings(), self.agent_status_query) as source:
            yield source

    def bulk(self, batch_rows: int = 32_768) -> MssqlBulkSource:
        """The data plane of the same server, for Spark tasks."""
        return MssqlBulkSource(self.settings(), batch_rows=batch_rows)
