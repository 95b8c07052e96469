"""Every private name of a driver and of asyncio that midturn uses is there, and it is used in one place only."""

import asyncio
import inspect
import tomllib
from pathlib import Path

import psycopg
import pytest

import midturn
from midturn.errors import EXTRAS
from midturn.journal import asyncio_private as of_asyncio
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


async def test_asyncio_has_the_name_and_only_one_file_reads_it():
    loop = asyncio.get_running_loop()
    assert of_asyncio.ready(loop) is loop._ready
    assert files_with('"_ready"') == [Path(of_asyncio.__file__)]


def test_an_event_loop_without_the_name_seems_busy():
    assert of_asyncio.ready(object())


@pytest.mark.parametrize("extra", ["postgres", "redis"])
def test_a_driver_has_an_upper_bound_and_the_error_names_the_same_range(extra):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"][extra] == [EXTRAS[extra]]
    assert ",<" in EXTRAS[extra]
