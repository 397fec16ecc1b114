"""What everything is: pure values and pure decisions, without I/O, clock or dice."""
