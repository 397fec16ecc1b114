"""The queues that Carillon is measured against, each at its fastest documented settings."""

# The runners import this package in an environment of their own, so it needs nothing but the standard library.
from bench.peers.install import install
from bench.peers.peer import DrainFailed, Kind, Peer, Peers, drain

__all__ = ["DrainFailed", "Kind", "Peer", "Peers", "drain", "install"]
