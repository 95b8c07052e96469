"""``import midturn`` loads nothing else until a name is used, and has every public name."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import midturn


def test_importing_it_loads_neither_asyncio_nor_autogen_nor_itself():
    code = "import sys; before = {*sys.modules}; import midturn; print(*({*sys.modules} - before))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "midturn" in found
    assert not [name for name in found if name.startswith(("asyncio", "autogen", "orjson", "midturn."))]


def test_type_checkers_see_the_names_that_it_has():
    tree = ast.parse(Path(midturn.__file__).read_text())
    seen = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert {*seen} - {"annotations", "import_module", "TYPE_CHECKING", "Any"} == {*midturn.__all__}


@pytest.mark.parametrize("name", midturn.__all__)
def test_every_name_is_there(name):
    assert getattr(midturn, name) is not None
    assert name in dir(midturn)


@pytest.mark.parametrize("name", midturn.__all__)
def test_every_name_is_documented(name):
    page = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
    assert re.search(rf"\b{name}\b", page.read_text())


def test_it_shows_nothing_else():
    import midturn.stores.registry

    assert "stores" in vars(midturn)
    assert [name for name in dir(midturn) if not name.startswith("__")] == sorted(midturn.__all__)


def test_another_name_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        midturn.Sesion  # noqa: B018 - it is what fails
