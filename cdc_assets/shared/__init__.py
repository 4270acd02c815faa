"""Shared by all activities of one capture: server, lake and ledger, statements, instances, restores and ended tables."""
