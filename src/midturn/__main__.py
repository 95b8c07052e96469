"""``python -m midturn``: the ``midturn`` command, where its script is not on ``PATH``."""

from midturn.cli import main

if __name__ == "__main__":
    main(prog_name="midturn")
