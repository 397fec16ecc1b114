"""Room 4: a route is attempted."""
