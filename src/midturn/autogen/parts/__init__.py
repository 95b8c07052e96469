"""What an agent or a team is made of."""
