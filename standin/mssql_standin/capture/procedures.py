"""The built-in procedures of change data capture by folded name."""

from typing import Final

from mssql_standin.capture import cleanup, describe, enable, jobs
from mssql_standin.capture.messages import error
from mssql_standin.contract import Parameter, Procedure, ProcedureContext


def _for_sysadmin(procedure: Procedure) -> Procedure:
    """Refuses everybody else (22902)."""

    def run(context: ProcedureContext, given: dict[str, Parameter]) -> int:
        if context.rights is not None:
            raise error(22902)
        return procedure(context, given)

    return run


def _for_owner(procedure: Procedure) -> Procedure:
    """Refuses whoever is not db_owner (22904)."""

    def run(context: ProcedureContext, given: dict[str, Parameter]) -> int:
        database = context.catalog.database(context.procedure_database)
        if context.rights is not None and (database is None or not context.rights.owns(database)):
            raise error(22904)
        return procedure(context, given)

    return run


PROCEDURES: Final[dict[str, Procedure]] = {
    "sp_cdc_enable_db": _for_sysadmin(enable.enable_db),
    "sp_cdc_disable_db": _for_sysadmin(enable.disable_db),
    "sp_cdc_enable_table": _for_owner(enable.enable_table),
    "sp_cdc_disable_table": _for_owner(enable.disable_table),
    "sp_cdc_help_change_data_capture": describe.help_change_data_capture,
    "sp_cdc_get_captured_columns": describe.get_captured_columns,
    "sp_cdc_get_ddl_history": describe.get_ddl_history,
    "sp_cdc_scan": _for_owner(describe.scan),
    "sp_cdc_help_jobs": _for_owner(jobs.help_jobs),
    "sp_cdc_add_job": _for_owner(jobs.add_job),
    "sp_cdc_drop_job": _for_owner(jobs.drop_job),
    "sp_cdc_change_job": _for_owner(jobs.change_job),
    "sp_cdc_start_job": _for_owner(jobs.start_job),
    "sp_cdc_stop_job": _for_owner(jobs.stop_job),
    "sp_cdc_cleanup_change_table": _for_owner(cleanup.cleanup_change_table),
}
