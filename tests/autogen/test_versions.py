"""Both ends of the supported range of AutoGen are tested, and neither is mistaken for the other.

``make test`` runs the tests that touch AutoGen a second time, with ``.venv/oldest`` first on the path and
``MIDTURN_AUTOGEN`` set to the version that this run is meant for; without it the version is that of requirements.lock.
"""

import base64
import hashlib
import importlib
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from midturn.errors import EXTRAS

ROOT = Path(__file__).parents[2]
OLDEST = ROOT / ".venv" / "oldest"
PARTS = ["autogen-agentchat", "autogen-core", "autogen-ext"]


def locked(name):
    """The versions in a lock file, by package."""
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    return {package: Version(version) for package, version in pins}


def of_autogen(requirements):
    """Return the required ranges of AutoGen's packages."""
    parsed = map(Requirement, requirements)
    return {required.name: required.specifier for required in parsed if required.name.startswith("autogen")}


def declared():
    """Return the ranges of AutoGen's packages that pyproject.toml requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return of_autogen(chain(project["dependencies"], *project["optional-dependencies"].values()))


def lower_end(specifiers):
    [bound] = [Version(one.version) for one in specifiers if one.operator == ">="]
    return bound


def under_test():
    """The version that this run is meant for, and whether it is the one beside the environment."""
    if (version := os.environ.get("MIDTURN_AUTOGEN")) is not None:
        return version, True
    return str(locked("requirements.lock")["autogen-agentchat"]), False


def module_of(part):
    return part.replace("-", "_")


def test_the_whole_of_autogen_has_one_range():
    assert sorted(declared()) == PARTS
    assert len(set(declared().values())) == 1
    assert of_autogen(EXTRAS.values()).items() <= declared().items()


def test_the_oldest_lock_has_the_lower_end_of_the_range_and_nothing_else():
    assert locked("requirements-oldest.lock") == {part: lower_end(declared()[part]) for part in PARTS}


@pytest.mark.parametrize("part", PARTS)
def test_the_main_lock_has_a_newer_version_of_the_range(part):
    newest = locked("requirements.lock")
    assert newest[part] in declared()[part]
    assert newest[part] > lower_end(declared()[part])
    assert newest[part] == newest["autogen-core"]


@pytest.mark.parametrize("part", PARTS)
def test_the_version_under_test_is_the_one_imported(part):
    version, oldest = under_test()
    module = importlib.import_module(module_of(part))
    assert module.__version__ == version
    assert Path(module.__file__).is_relative_to(OLDEST) is oldest


@pytest.mark.parametrize("part", PARTS)
def test_the_files_are_those_of_that_version(part):
    installed, module = distribution(part), importlib.import_module(module_of(part))
    files = [file for file in installed.files if file.parts[0] == module_of(part) and file.hash]
    assert Path(module.__file__).samefile(installed.locate_file(f"{module_of(part)}/__init__.py"))
    assert len(files) > 10
    assert [file for file in files if digest(file) != (file.hash.mode, file.hash.value)] == []


def digest(file):
    """Return a file's digest as its package's list of files has it, if nobody changed the file."""
    found = hashlib.sha256(file.locate().read_bytes()).digest()
    return "sha256", base64.urlsafe_b64encode(found).rstrip(b"=").decode()


SAY = """
import importlib.util, importlib.metadata, sys
for part in sys.argv[1:]:
    print(importlib.metadata.version(part), importlib.util.find_spec(part.replace("-", "_")).origin)
"""


def test_a_process_that_a_test_starts_has_the_same_version():
    done = subprocess.run([sys.executable, "-c", SAY, *PARTS], capture_output=True, text=True, check=True)
    here = [importlib.import_module(module_of(part)) for part in PARTS]
    assert done.stdout.splitlines() == [f"{module.__version__} {module.__file__}" for module in here]
