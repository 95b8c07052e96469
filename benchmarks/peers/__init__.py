"""Other projects that store the conversations of agents, in an environment of their own."""
