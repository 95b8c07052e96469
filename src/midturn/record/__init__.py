"""The storage format: the codec, the head of a session, its rows, and the packing of a state into rows."""
