"""The built-in catalogue procedures by folded name."""

from typing import Final

from cdc_assets.standin.contract import Procedure
from cdc_assets.standin.system import information, metadata

PROCEDURES: Final[dict[str, Procedure]] = {
    "sp_tables": metadata.sp_tables,
    "sp_columns": metadata.sp_columns,
    "sp_columns_90": metadata.sp_columns,
    "sp_columns_100": metadata.sp_columns_100,
    "sp_pkeys": metadata.sp_pkeys,
    "sp_statistics": metadata.sp_statistics,
    "sp_statistics_100": metadata.sp_statistics,
    "sp_fkeys": metadata.sp_fkeys,
    "sp_special_columns": metadata.sp_special_columns,
    "sp_special_columns_90": metadata.sp_special_columns,
    "sp_special_columns_100": metadata.sp_special_columns,
    "sp_datatype_info": information.sp_datatype_info,
    "sp_datatype_info_90": information.sp_datatype_info,
    "sp_datatype_info_100": information.sp_datatype_info,
    "sp_stored_procedures": information.sp_stored_procedures,
    "sp_databases": information.sp_databases,
    "sp_server_info": information.sp_server_info,
    "sp_helpdb": information.sp_helpdb,
}
