"""`python -m demo run|dev|mysql`."""

from importlib import import_module

from cdc_assets.core.process_settings import set_up_process

set_up_process()
import_module("demo.cli").app()
