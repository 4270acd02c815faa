"""The query of all versions of a mirror's rows, as docs/mirrors.md shows it."""

import re
from collections.abc import Sequence

from cdc_assets_tests.shop import ROOT

_PAGE = (ROOT / "docs" / "mirrors.md").read_text()


def shown_query(columns: Sequence[str], table: str) -> str:
    """The query for a table of these columns."""
    (query,) = re.findall(r"```sql\n(SELECT .*?UNION ALL\n.*?)```", _PAGE, re.DOTALL)
    return str(query).replace("SELECT id, name,", f"SELECT {', '.join(columns)},").replace("customers", table)
