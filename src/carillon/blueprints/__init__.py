"""The configurations Carillon ships: a folder each, settings and templates, no engine code."""
