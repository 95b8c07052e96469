"""Who may write a session: its lease, and whether the process that holds it is alive."""
