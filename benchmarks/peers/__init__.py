"""Other projects that keep what agents say, each by its own means, in an environment of their own."""
