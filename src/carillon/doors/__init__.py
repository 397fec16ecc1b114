"""It arrives: one module for each transport that brings intents."""
