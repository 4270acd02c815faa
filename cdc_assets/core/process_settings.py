"""Settings of a whole process: made where a process is ours, and never by an import.

A program that imports a part of this library keeps its allocators. Ours are the processes of the command line, and
those of a code location, which use a name that makes definitions (`cdc_assets.__getattr__`). Spark's workers inherit what their
driver has. Settings of the drivers belong to the first connection (`adapters.sqlserver`).
"""

import os


def set_up_process() -> None:
    """Choose the allocators, unless somebody has; before Arrow and delta-rs are imported, which read them once."""
    # Arrow's own keep what is freed: as fast, and a tenth (streams) to a quarter (mirrors) more memory
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # The one inside delta-rs (jemalloc) gives back what is freed only while more is wanted, from one of eight and more arenas: a
    # driver that has committed to a thousand tables kept 240 MB of it. With two, and a second instead of ten, commits cost the same.
    os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0")
