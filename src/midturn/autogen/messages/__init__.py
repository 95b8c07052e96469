"""AutoGen's messages as JSON and back."""
