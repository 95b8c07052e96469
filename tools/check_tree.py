"""Check the tracked files: no long source files, no marks of a merge, and no trace of the machine of their author.

Modules that tests share have names of their own, since tests import them by name alone.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600
SKIPPED_FOLDERS = frozenset({".git", ".venv", "build", "dist", "node_modules", "__pycache__"})

# path -> reason for a long file
LONG_FILES: dict[str, str] = {}

# Letters in brackets keep these patterns from matching their own text.
INSTALL_SOURCE = re.compile(
    r"index[-_]ur[l]|find[-_]link[s]|trusted[-_]hos[t]|file:/[/]/|\[\[?tool\.uv\.inde[x]|https?://[^\s\"']*/simpl[e]\b"
    r"|pypi\.or[g]|pythonhosted\.or[g]|registry\.npmj[s]",
    re.IGNORECASE,
)
MERGE_MARK = re.compile(r"[<>]{7} ")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:roo[t]/|hom[e]/[a-z]|User[s]/[A-Za-z]|wor[k]/|op[t]/)")

# Stores are opened by URL and examples show paths, so prose, code and tests may contain such words.
PROSE = ("src/", "tests/", "docs/", "examples/", "README.md", "CHANGELOG.md")


def tracked() -> list[str]:
    """Return the paths that git tracks or would add. Without git, return all files outside build folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        return sorted(path.as_posix() for path in found if SKIPPED_FOLDERS.isdisjoint(path.parts))
    names = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
    return sorted({name for name in names if name and (ROOT / name).is_file()})


def problems(name: str) -> Iterator[str]:
    """Yield the problems of one file, a sentence each."""
    try:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return  # a picture or another binary file
    if name.startswith("src/") and len(lines) > MAX_LINES and name not in LONG_FILES:
        yield f"{name}: {len(lines)} lines; split it, or give the reason in LONG_FILES (limit {MAX_LINES})"
    for number, line in enumerate(lines, start=1):
        if MERGE_MARK.match(line):
            yield f"{name}:{number}: has a mark of an unfinished merge"
    if name.startswith(PROSE):
        return
    for number, line in enumerate(lines, start=1):
        for pattern, what in ((INSTALL_SOURCE, "a package source"), (MACHINE_PATH, "a path of one machine")):
            if match := pattern.search(line):
                yield f"{name}:{number}: names {what}: {match.group()}"


def shared_names(names: list[str]) -> Iterator[str]:
    """Yield a sentence for each module of the tests that has the name of another: a test would import the wrong one."""
    known: dict[str, str] = {}
    for path in map(Path, names):
        if path.parts[0] != "tests" or path.suffix != ".py" or path.name.startswith(("test_", "conftest", "__init__")):
            continue
        if (other := known.setdefault(path.name, path.as_posix())) != path.as_posix():
            yield f"{path.as_posix()}: has the name of {other}"


def main() -> int:
    """Print every problem. Return 1 if there is any."""
    names = tracked()
    found = [problem for name in names for problem in problems(name)]
    found += shared_names(names)
    found += [f"{name}: listed in LONG_FILES but gone" for name in LONG_FILES if name not in names]
    for problem in found:
        print(problem)
    print(f"{len(names)} files, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
