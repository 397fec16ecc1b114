"""Everything that proves Carillon does what it says."""
