"""The built-in procedures of change data capture by folded name."""

from typing import Final

from cdc_assets.standin.capture import cleanup, describe, enable, jobs
from cdc_assets.standin.contract import Procedure

PROCEDURES: Final[dict[str, Procedure]] = {
    "sp_cdc_enable_db": enable.enable_db,
    "sp_cdc_disable_db": enable.disable_db,
    "sp_cdc_enable_table": enable.enable_table,
    "sp_cdc_disable_table": enable.disable_table,
    "sp_cdc_help_change_data_capture": describe.help_change_data_capture,
    "sp_cdc_get_captured_columns": describe.get_captured_columns,
    "sp_cdc_get_ddl_history": describe.get_ddl_history,
    "sp_cdc_scan": describe.scan,
    "sp_cdc_help_jobs": jobs.help_jobs,
    "sp_cdc_add_job": jobs.add_job,
    "sp_cdc_drop_job": jobs.drop_job,
    "sp_cdc_change_job": jobs.change_job,
    "sp_cdc_start_job": jobs.start_job,
    "sp_cdc_stop_job": jobs.stop_job,
    "sp_cdc_cleanup_change_table": cleanup.cleanup_change_table,
}
