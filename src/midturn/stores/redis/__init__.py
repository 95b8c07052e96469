"""``redis://``: sessions in Redis or Valkey."""
