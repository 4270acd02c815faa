"""The built-in catalogue procedures by folded name."""

from typing import Final

from mssql_standin.contract import Parameter, Procedure, ProcedureContext
from mssql_standin.errors import unsupported
from mssql_standin.system import metadata, types


def _refused(name: str) -> Procedure:
    def run(_: ProcedureContext, __: dict[str, Parameter]) -> int:
        raise unsupported(f"the procedure {name}")

    return run


_LEFT_OUT: Final = (
    "sp_columns", "sp_columns_90", "sp_fkeys", "sp_special_columns", "sp_special_columns_90", "sp_special_columns_100",
    "sp_stored_procedures", "sp_databases", "sp_server_info", "sp_helpdb",
)  # fmt: skip
PROCEDURES: Final[dict[str, Procedure]] = {
    "sp_tables": metadata.sp_tables,
    "sp_columns_100": metadata.sp_columns_100,
    "sp_pkeys": metadata.sp_pkeys,
    "sp_statistics": metadata.sp_statistics,
    "sp_statistics_100": metadata.sp_statistics,
    "sp_datatype_info": types.sp_datatype_info,
    "sp_datatype_info_90": types.sp_datatype_info,
    "sp_datatype_info_100": types.sp_datatype_info,
    **{name: _refused(name) for name in _LEFT_OUT},
}
