"""The calls that agents make, and their way through the journal."""
