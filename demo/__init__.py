"""The demonstration behind `make run`, `make dev` and `make run-mysql`; no part of the library."""
