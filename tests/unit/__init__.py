"""Pure modules and the test parts themselves."""
