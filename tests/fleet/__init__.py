"""A fleet on one machine: servers in their highly available forms, processes of every blueprint, faults, figures."""
