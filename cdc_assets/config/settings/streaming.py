"""Settings of streaming."""

from dataclasses import dataclass
from typing import Literal

GapPolicy = Literal["fail", "resnapshot", "ignore"]


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """Settings of streaming (spec debezium-sqlserver §3).

    Args:
        poll_interval_s: `poll.interval.ms` in seconds: wait when there is nothing new.
        max_iteration_transactions: transactions per window at most; 0 sets no limit.
        window_rows: change rows at which a window ends (`rows.per.window`); 0 derives it from the number of parallel
            tasks.
        query_mode: `data.query.mode`.
        fetch_size: rows per Arrow batch (`query.fetch.size`).
        slices: parts a window is cut into (`slices.per.window`); 0 takes the task runner's parallelism.
        idle_timeout_s: seconds without a change after which a run ends; 0 never.
        max_duration_s: seconds after which a run ends at the next window border; 0 never.
        sensor_wait_s: `sensor.wait.ms` in seconds: how long a tick of Dagster's sensor waits for a change.
        delay_s: `streaming.delay.ms` in seconds: wait between snapshot and stream.
        gap_policy: reaction for a table whose changes were cleaned up before they were read.
        retry_wait_s: `retriable.restart.connector.wait.ms` in seconds.
        max_retries: `errors.max.retries`; -1 retries for ever.
        instance_include: regexes of capture instance names to use; empty means all.
        instance_exclude: regexes of capture instance names to leave out.
        agent_status_query: T-SQL giving one value, 1 if the Agent runs; `#db` stands for the database.
    """

    poll_interval_s: float = 0.5
    max_iteration_transactions: int = 100_000
    window_rows: int = 0
    query_mode: Literal["direct", "function"] = "direct"
    fetch_size: int = 32_768
    slices: int = 0
    idle_timeout_s: float = 10.0
    max_duration_s: float = 43_200.0
    sensor_wait_s: float = 4.0
    delay_s: float = 0.0
    gap_policy: GapPolicy = "fail"
    retry_wait_s: float = 10.0
    max_retries: int = -1
    instance_include: tuple[str, ...] = ()
    instance_exclude: tuple[str, ...] = ()
    agent_status_query: str = ""
