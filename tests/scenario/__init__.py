"""One file per blueprint: the composed program as a black box."""
