"""The stores that come with leftoff; each knows only the contract in :mod:`leftoff.store` and the records."""
