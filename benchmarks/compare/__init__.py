"""Compare midturn with the floor and with other projects: the same turns, in one run, on one machine."""
