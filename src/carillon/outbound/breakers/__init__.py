"""Circuit breakers: in memory, in Redis, or in the ledger."""
