"""Every private name of a driver that midturn uses is there, and only one file uses it."""

import inspect
import tomllib
from pathlib import Path

import psycopg
import pytest

import midturn
from midturn.errors import EXTRAS
from midturn.stores.postgres import private as of_psycopg

PACKAGE = Path(midturn.__file__).parent
OF_PSYCOPG = {"_deallocate": psycopg.AsyncConnection, "_execute_send": psycopg.AsyncCursor}


def files_with(text):
    return [path for path in PACKAGE.rglob("*.py") if text in path.read_text()]


@pytest.mark.parametrize("name", OF_PSYCOPG)
def test_psycopg_has_the_name_and_only_one_file_overrides_it(name):
    assert hasattr(OF_PSYCOPG[name], name)
    assert files_with(f"def {name}(") == [Path(of_psycopg.__file__)]


def test_psycopg_takes_what_is_overridden_as_it_is_called():
    assert list(inspect.signature(psycopg.AsyncConnection._deallocate).parameters) == ["self", "name"]
    assert "force_extended" in inspect.signature(psycopg.AsyncCursor._execute_send).parameters


@pytest.mark.parametrize("extra", ["postgres", "redis"])
def test_a_driver_has_an_upper_bound_and_the_error_names_the_same_range(extra):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"][extra] == [EXTRAS[extra]]
    assert ",<" in EXTRAS[extra]
