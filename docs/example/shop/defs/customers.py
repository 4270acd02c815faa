"""An asset of one's own: the table itself, kept from its events, beside the number of rows on the server."""

import dagster as dg
from deltalake import write_deltalake
from pyspark.sql import DataFrame

from cdc_assets import SqlServerCdcResource, current_rows

EVENTS = "sales_envelope_io"  # <capture>_envelope_io


@dg.asset(
    ins={
        "reads": dg.AssetIn(["sales", "customers.snapshot"], input_manager_key=EVENTS),
        "changes": dg.AssetIn(["sales", "customers.changes"], input_manager_key=EVENTS),
    },
    required_resource_keys={"sales_sqlserver"},
)
def customers(context: dg.AssetExecutionContext, reads: DataFrame, changes: DataFrame) -> None:
    """Rows of `dbo.customers` as of the newest event."""
    rows = current_rows(reads.unionByName(changes)).toArrow()
    write_deltalake("var/tables/customers", rows, mode="overwrite")
    server: SqlServerCdcResource = context.resources.sales_sqlserver
    [there] = server.query("SELECT COUNT(*) AS number FROM SalesDb.dbo.customers")
    context.add_output_metadata({"rows": rows.num_rows, "on the server": int(str(there["number"]))})
