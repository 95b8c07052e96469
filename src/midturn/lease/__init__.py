"""The lease of a session: the right to write it, and the check whether its holder is alive."""
