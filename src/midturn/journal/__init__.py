"""The calls inside a turn: recorded when they are complete, answered from the record when the turn runs again."""
