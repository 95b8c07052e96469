"""The calls inside a turn: recorded when they are complete, served when the turn runs again."""
