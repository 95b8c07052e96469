"""``postgresql://``: sessions in a Postgres database."""
