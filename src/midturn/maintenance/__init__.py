"""Work on many sessions: copying them to another store, bringing them to another version."""
