"""AutoGen agents and teams; no other room imports AutoGen."""
