"""Carillon and its peers, measured side by side in one run on one machine; only the ratios mean anything."""
