"""`python -m demo run|dev|mysql`."""

from demo.cli import app

app()
