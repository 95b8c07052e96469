"""The suite finds what it is there to find: stores with one fault each turn it red."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from midturn.testing import StoreConformance

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from faulty_stores import MUTANTS  # noqa: E402 - a package beside this file, which importlib mode does not find

pytestmark = pytest.mark.xdist_group("faulty stores")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By class: which tests passed and which failed."""
    report = tmp_path_factory.mktemp("faulty") / "report.xml"
    # That hundreds of tests fail is wanted: nobody has to know how.
    options = ["-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
    options += [f"--basetemp={report.parent / 'places'}", "-o", "asyncio_mode=strict"]
    command = [sys.executable, "-m", "pytest", *options, "faulty_stores/suites.py"]
    run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    found = {}
    for case in ET.parse(report).iter("testcase"):
        passed, failed = found.setdefault(case.get("classname").rpartition(".Test")[2], (set(), set()))
        red = case.find("failure") is not None or case.find("error") is not None
        (failed if red else passed).add(case.get("name").partition("[")[0])
    return found


@pytest.mark.parametrize("name", MUTANTS)
def test_a_faulty_store_is_caught_by_the_tests_that_are_there_for_it(results, name):
    _, caught_by = MUTANTS[name]
    assert caught_by
    assert results[name][1] == set(caught_by)


def test_the_store_that_the_faults_are_put_into_passes(results):
    passed, failed = results["Kept"]
    assert failed == set()
    assert passed == {name for name in dir(StoreConformance) if name.startswith("test_")}


def test_every_test_of_the_suite_catches_something():
    tests = {name for name in dir(StoreConformance) if name.startswith("test_")}
    assert {name for _, caught_by in MUTANTS.values() for name in caught_by} == tests
