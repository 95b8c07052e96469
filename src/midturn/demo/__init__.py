"""The demo, and the models that it can use."""
