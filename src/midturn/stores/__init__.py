"""The stores that come with midturn; each knows only the contract in :mod:`midturn.store` and the records."""
