"""Work on many sessions: copying them to another store, and migrating them to another version."""
