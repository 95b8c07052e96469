"""AutoGen's own tests, run plain and through sessions."""
