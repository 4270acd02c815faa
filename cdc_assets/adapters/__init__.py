"""Clients of outside systems, one sub-package each. They implement the ports of `core`; `defs` and `cli` choose
them."""
