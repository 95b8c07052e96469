"""The demonstration and the models it can run with."""
