"""Reading a session back: its turns and its checkpoints."""
