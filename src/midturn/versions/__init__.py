"""When code changes: blueprints and their versions, migrations, and what differs from a checkpoint."""
