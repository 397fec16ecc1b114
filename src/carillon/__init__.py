"""Carillon delivers notifications durably: written down before answered, tried until told."""

__version__ = "0.1.0"
