"""Stores in which nobody can read or change a record without the keys: :mod:`.store` wraps any other store."""
