"""midturn, the floor, and what somebody would pick instead: the same turns, in one run, on one machine."""
