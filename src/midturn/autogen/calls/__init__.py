"""The calls that agents make, and how they go through the journal."""
