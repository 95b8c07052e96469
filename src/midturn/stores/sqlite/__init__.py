"""``sqlite://``: sessions in one SQLite file."""
