"""How agents and teams are configured, as JSON."""
