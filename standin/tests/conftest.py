"""What all tests of the stand-in share."""

import os

from hypothesis import settings

os.environ.pop("COLUMNS", None)  # pytest-xdist tells its workers a width of 80; lines are as wide as in a pipe

settings.register_profile("no deadline", deadline=None)  # a loaded machine is no fault; `timeout` ends what hangs
settings.load_profile("no deadline")
