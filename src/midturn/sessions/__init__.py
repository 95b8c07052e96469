"""The public API: ``midturn.open`` and the sessions in a store."""
