"""The state of an agent or a team: captured, checked, loaded."""
