"""The parts of an agent or a team."""
