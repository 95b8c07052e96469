"""``file://``: sessions as files of JSON lines in a directory."""
