"""The stores that come with midturn; each uses only the contract in :mod:`midturn.store` and the records."""
