"""Checks of `doctor`: key columns of which events keep fewer digits than the server compares.

Two rows of the server may then have one key in the events, so the table gets no mirror and no compaction by key.
"""

from collections.abc import Iterator, Sequence

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.check_result import CheckResult
from cdc_assets.core.schema import Column, TableSchema, declared_type
from cdc_assets.envelope.plan import ConnectorIdentity, plan_events
from cdc_assets.errors import ConfigurationError
from cdc_assets.typemap.exact import coarse_by, exact_setting


def check_keys(schema: TableSchema, captured: Sequence[str], config: CaptureConfig) -> Iterator[CheckResult]:
    """A check for each key column of which fewer digits are kept than the server compares; none for a right key.

    Args:
        captured: columns of the capture instance.
    """
    try:
        plan = plan_events(schema, captured, config.events, connector=ConnectorIdentity())
    except ConfigurationError:
        return  # the capture reports it for its table
    fields = {column.name: (column.mapped.column, column.key_field) for column in plan.columns}
    for column, field in (fields[name] for name in plan.key):
        if setting := coarse_by(column, field):
            remedy = (
                f"set {exact_setting(column)}, which changes the form of all such columns, and read the table again"
            )
            expected = "in keys with every digit; otherwise there is no mirror of the table and no compaction by key"
            yield _result(schema, column, f"shortened by {setting}", expected, remedy)


def _result(schema: TableSchema, column: Column, actual: str, expected: str, remedy: str) -> CheckResult:
    subject = f"{schema.table}.{column.name}"
    return CheckResult("key", subject, False, f"{declared_type(column)}, {actual}", expected, remedy, blocking=False)
