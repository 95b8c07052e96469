"""Changes of the code: blueprints and their versions, migrations, and the differences from a checkpoint."""
