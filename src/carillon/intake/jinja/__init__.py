"""The jinja engine: templates with loops, conditions, filters, macros, layouts and partials, within limits."""
