"""SQL Server change data capture as Dagster assets on Spark and Delta.

Imports nothing: `resources` and `cdc_assets` refer to each other, and an empty
package head keeps that from becoming an import cycle.
"""

__version__ = "0.1.0"
