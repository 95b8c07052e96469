"""The configuration of agents and teams, as JSON."""
