"""What all activities of one capture share: its server, lake and ledger, statements, instances, restores and endings."""
