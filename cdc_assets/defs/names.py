"""The names of one capture's objects in Dagster: jobs, steps, pools, resources."""

from dataclasses import dataclass

from cdc_assets.defs.translator import word


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one capture's objects in Dagster."""

    capture: str

    @property
    def resource(self) -> str:
        """Key of its `CaptureResource`."""
        return f"cdc_{word(self.capture)}"

    @property
    def spark(self) -> str:
        """Key of its Spark session; captures of one `build_definitions` share one. Not `spark`, which is for users' own."""
        return f"{word(self.capture)}_spark"

    @property
    def server(self) -> str:
        """Key of its `SqlServerCdcResource`."""
        return f"{word(self.capture)}_sqlserver"

    @property
    def pool(self) -> str:
        """Pool that lets only one run write at a time."""
        return f"cdc_{word(self.capture)}"

    @property
    def snapshot(self) -> str:
        """Job that takes snapshots."""
        return f"{word(self.capture)}_snapshot"

    @property
    def snapshot_op(self) -> str:
        """Step of the snapshot job."""
        return f"{word(self.capture)}_read_tables"

    @property
    def changes(self) -> str:
        """Job that streams changes."""
        return f"{word(self.capture)}_changes"

    @property
    def follow(self) -> str:
        """Job that streams changes for the sensor; see `sensors`."""
        return f"{word(self.capture)}_follow"

    @property
    def changes_op(self) -> str:
        """Step of the changes job."""
        return f"{word(self.capture)}_follow_log"

    @property
    def mirror(self) -> str:
        """Job that lets mirrors follow their topics."""
        return f"{word(self.capture)}_mirror"

    @property
    def mirror_op(self) -> str:
        """Step of the mirror job."""
        return f"{word(self.capture)}_apply_events"

    @property
    def mirror_pool(self) -> str:
        """Pool that lets only one run write mirrors."""
        return f"cdc_{word(self.capture)}_mirror"

    @property
    def reconcile(self) -> str:
        """Job that compares mirrors with the server."""
        return f"{word(self.capture)}_reconcile"

    @property
    def reconcile_op(self) -> str:
        """Step of that job."""
        return f"{word(self.capture)}_compare"

    @property
    def publish(self) -> str:
        """Job that publishes to Kafka."""
        return f"{word(self.capture)}_publish"

    @property
    def publish_op(self) -> str:
        """Step of that job."""
        return f"{word(self.capture)}_publish_windows"

    @property
    def kafka_pool(self) -> str:
        """Pool that lets only one run publish."""
        return f"cdc_{word(self.capture)}_kafka"

    @property
    def signal(self) -> str:
        """Job that requests snapshots by a signal."""
        return f"{word(self.capture)}_signal"

    @property
    def signal_op(self) -> str:
        """Step of the signal job."""
        return f"{word(self.capture)}_ask"

    @property
    def headroom(self) -> str:
        """Job of the half-hourly checks."""
        return f"{word(self.capture)}_headroom"

    @property
    def sensor(self) -> str:
        """Sensor that checks for a new LSN."""
        return f"{word(self.capture)}_lsn"

    @property
    def log_sensor(self) -> str:
        """Sensor that queries where the log of another database than SQL Server ends."""
        return f"{word(self.capture)}_log"

    @property
    def envelope_io(self) -> str:
        """Key of the IO manager that loads and appends topic tables."""
        return f"{word(self.capture)}_envelope_io"

    @property
    def history_io(self) -> str:
        """Key of the IO manager of the schema history."""
        return f"{word(self.capture)}_schema_history_io"
