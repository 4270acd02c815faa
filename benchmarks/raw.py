"""What a task of the raw read does; it imports no more than a task of a capture, so that workers hold no more."""

from collections.abc import Sequence

from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.shared.statements import Statement


def count_rows(task: tuple[MssqlBulkSource, Sequence[Statement]]) -> int:
    """Read some statements as Arrow and keep nothing."""
    bulk, statements = task
    return sum(batch.num_rows for text, parameters in statements for batch in bulk.read(text, parameters))
