"""Sessions, batches, transactions, locks, definitions, storage."""
