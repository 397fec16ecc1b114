"""Simulated worlds: several processes of the real engine on one ledger, killed and stopped at any await, by a seed."""
