"""Check the words: docstrings that begin with a verb, a short README, and no idiom that only we understand."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("src", "tools", "benchmarks", "examples", "tests")
# Sentences that describe a test need no verb at the beginning. They are no questions either.
SENTENCES = "tests"
# They have the list, and examples of what it finds.
LISTS = ("tools/check_words.py", "tests/docs/test_check_words.py")
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md")
# Its words are those of the docstrings in src/midturn/cli and of tools/cli_reference.py, which are checked there.
GENERATED = "docs/reference/cli.md"
README_WORDS = 600

QUESTIONS = "How|What|Whatever|When|Where|Whether|Which|Who|Whoever|Whom|Whose|Why"
NO_VERBS = (
    rf"{QUESTIONS}|A|After|All|Also|An|Another|Any|Anything|As|At|Before|Between|Both|By|Each|Either|Every|Everything|For"
    "|From|Here|If|In|Inside|Instead|Into|It|Its|Like|More|Most|Neither|Never|No|Nobody|None|Not|Nothing|Of|On|One|Only|Or"
    "|Our|Same|Several|Since|So|Some|Somebody|Something|Than|That|The|Their|Then|There|These|They|This|Those|Two|Under"
    "|Until|Up|With|Within|Without|You|Your"
    "|[A-Z]{2,}"  # an abbreviation
    r"|[\w']*[^su]s"  # a noun in the plural, a genitive, or "Returns"
    "|[^A-Z].*"  # a small letter, a quote
    "|(?:Say|See) (?:that|whether)"
)

# What only we understand, and what to write instead. A space also stands for the end of a line.
IDIOM = {
    "(?:goes|gone|went) on|(?:go|going) on (?:with|from|where|after|until|when)": "continue",
    "left off": "stopped, interrupted or omitted",
    "is said": "name who says it: the error, the log, midturn",
    r"(?<!there\s)(?-i:is none)": "say what is missing",
    "of (?:which|whom) (?:is|are|was|were)": "split the sentence",
    "thereof|whereof|wherein|whereby": "name the thing",
    "(?:is|are|was|were) told (?:that|with|of|in|once|when|what|each)": "reported",
    "(?:can|could|cannot) be had": "available",
    "(?:keeps?|kept) in mind": "remember or cache",
    "on the strength of": "because of",
    "what (?:was|is) built": "the agent or team that was built",
    "comes? of it": "the result, the outcome",
    "(?:be|is|was|were|been|created|asked|begins?|used|runs?) anew": "again",
    "all that is left of": "say what stays",
}
PATTERNS = {re.compile(rf"\b(?:{words})\b".replace(" ", r"\s+"), re.IGNORECASE): say for words, say in IDIOM.items()}


def idiom(name: str, text: str, first_line: int = 1) -> Iterator[str]:
    """Yield a problem for each phrase in a text that readers do not know."""
    for pattern, instead in PATTERNS.items():
        for match in pattern.finditer(text):
            line = first_line + text.count("\n", 0, match.start())
            yield f"{name}:{line}: {' '.join(match.group().split())!r}: {instead}"


def opener(name: str, node: ast.Constant, forbidden: str, wanted: str) -> Iterator[str]:
    """Yield a problem if the docstring in a node begins with a forbidden word."""
    line = str(node.value).strip().partition("\n")[0]
    if re.match(rf"(?:{forbidden})(?![\w'])", line):
        yield f"{name}:{node.lineno}: {line!r}: {wanted}"


def docstrings(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield a problem for each docstring of a module, class, function or attribute that begins with the wrong word."""
    for node in ast.walk(tree):
        rooms = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        body: list[ast.stmt] = node.body if isinstance(node, rooms) else []
        for target, stmt in pairwise(body):
            if isinstance(target, ast.Assign | ast.AnnAssign) and (text := string(stmt)):
                yield from opener(name, text, QUESTIONS, "begin with a noun: what is it?")
        if isinstance(node, ast.ClassDef | ast.Module) and (text := string(node.body[0] if node.body else None)):
            yield from opener(name, text, QUESTIONS, "begin with a noun: what is it?")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := string(node.body[0])):
            forbidden = QUESTIONS if name.startswith(SENTENCES) else NO_VERBS
            yield from opener(name, text, forbidden, "begin with a verb: what does it do?")


def string(stmt: ast.stmt | None) -> ast.Constant | None:
    """Return the string that is all of a statement, or None."""
    value = stmt.value if isinstance(stmt, ast.Expr) else None
    return value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def problems_of_code(name: str, source: str) -> Iterator[str]:
    """Yield the problems of a Python file, in its docstrings and its other strings."""
    tree = ast.parse(source)
    yield from docstrings(name, tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from idiom(name, node.value, node.lineno)


def problems() -> Iterator[str]:
    """Yield every problem in the tree, with its file and line."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name not in LISTS:
                yield from problems_of_code(name, path.read_text())
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        if (name := path.relative_to(ROOT).as_posix()) != GENERATED:
            yield from idiom(name, path.read_text())
    if (words := len((ROOT / "README.md").read_text().split())) >= README_WORDS:
        yield f"README.md:1: {words} words; it needs fewer than {README_WORDS}: move something to docs/"


def main() -> int:
    """Print every problem and how many each room has, and return 1 if there is any."""
    found = list(problems())
    print(*found, sep="\n", end="\n" if found else "")
    rooms = Counter(re.split(r"[:/]", problem)[0] for problem in found)
    print(f"{len(found)} problems", *(f"{room} {count}" for room, count in sorted(rooms.items())), sep=", ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
