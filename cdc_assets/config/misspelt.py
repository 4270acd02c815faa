"""Environment variables whose names are nearly those of ours: they have no effect, which nobody would notice.

Others may begin with `CDC_`, too. So a variable is named only if it is very near to one of ours. One to which a placeholder of the
configuration refers is not named. Nor is one that holds a whole name of ours (`CDC_DATABASE_PASSWORD_ERP`, `CDC_DATABASE_PASSWORD2`): another
capture may refer to it.
"""

import difflib
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from string import digits
from typing import Final

log = logging.getLogger(__name__)

PREFIX: Final = "CDC_"
OF_PROCESSES: Final = (
    "CDC_CONFIG",
    "CDC_CRASH_AT",
    "CDC_PLAIN_PARQUET",
    "CDC_RUNBOOK_URL",
    "CDC_SPARK_CONF",
    "CDC_SPARK_MASTER",
    "CDC_SPARK_REMOTE",
    "CDC_STATE_DIR",
    "CDC_TRACEBACK",
)
"""Variables of ours that are no properties."""
_NEAR: Final = 0.85
"""How alike two names are of which one is the other misspelt: `CDC_DATABASE_HOST` is, and `CDC_DB_PASSWORD` is not."""
_REFERENCE: Final = re.compile(r"\$\{env:([^}]*)\}")
_named: set[str] = set()


def warn_of_misspelt(environment: Mapping[str, str], properties: Collection[str], texts: Iterable[str]) -> None:
    """Warn of variables that look like misspelt ones of ours, once of each.

    Args:
        properties: names of the variables that set a property.
        texts: of the configuration, with placeholders as they are written.
    """
    unknown = {name for name in environment if name.startswith(PREFIX)}.difference(properties, OF_PROCESSES, _named)
    if not unknown:
        return
    unknown -= {name for text in texts for name in _REFERENCE.findall(text)}
    for name in sorted(unknown):
        near = difflib.get_close_matches(name, [*properties, *OF_PROCESSES], n=1, cutoff=_NEAR)
        if near and f"_{near[0].removeprefix(PREFIX)}_" not in f"{name.rstrip(digits)}_":
            _named.add(name)
            log.warning(
                "The environment variable %s has no effect: no property or variable of cdc-assets has this name. Next: did you mean %s?",
                name,
                near[0],
            )
