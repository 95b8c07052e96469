"""Samples: simple rows and writes, and ids, labels and bytes that are difficult for stores."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from midturn.record.codec import encode
from midturn.record.head import NO_LABELS, Kind, Removal, Row, Status, Write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_tokens = count(1)


def a_row(n: int, data: bytes | None = None, *, kind: Kind = Kind.BODY) -> Row:
    """Return a row; without ``data``, it contains its number."""
    return Row(kind=kind, n=n, data=encode({"n": n}) if data is None else data)


def a_call(n: int, data: bytes | None = None) -> Row:
    """Return a row of a call."""
    return a_row(n, data, kind=Kind.CALL)


def a_removal(stop: int, start: int = 0, *, kind: Kind = Kind.CALL) -> Removal:
    """Return the removal of the rows of a kind, by default of the calls, below a number."""
    return Removal(kind, start, stop)


def a_write(
    session: str = "case-42",
    seq: int = 0,
    *,
    after: str | None = None,
    epoch: int = 1,
    status: Status = "idle",
    labels: Mapping[str, str] = NO_LABELS,
    owner: str | None = None,
    lease: float = 0.0,
    token: str = "",
    data: bytes = b"{}",
    rows: Iterable[Row] = (),
    removes: Iterable[Removal] = (),
) -> Write:
    """Return a write with a unique token, by default the first write of ``case-42``."""
    return Write(
        session=session,
        seq=seq,
        after=after,
        epoch=epoch,
        status=status,
        labels=labels,
        owner=owner,
        lease=lease,
        token=token or f"token-{next(_tokens)}",
        data=data,
        rows=tuple(rows),
        removes=tuple(removes),
    )


HOSTILE_IDS = (
    # paths
    *(".", "..", "../up", "../../up", "/etc/passwd", "a/b", "a\\b", "C:\\a", "//host/a", "~", "~root", "a/", "a//b"),
    *(".hidden", "a.", "a ", " a", " ", "-rf", "--", "file:///a", "a.json", "a.tmp", "a-wal", "a.lock"),
    # escapes of each other
    *("%", "%%", "%2e%2e", "%2E%2E", "a%2Fb", "a%2fb", "a%252Fb", "a_b", "a-b", "a+b", "a&b", "a=b", "a#b", "a?b"),
    # SQL, Lua, shells, globs, formats and key separators
    *("'", "''", '"', "`", ";", "' OR '1'='1", "'); DROP TABLE sessions; --", "a'--", "$1", ":id", "?", "{}", "{0}"),
    *("]] return redis.call('FLUSHALL') --", "$(id)", "${HOME}", "a;b", "a|b", "*", "a*", "[a-z]", "[!a]", "?a", "\\"),
    *("\\%", "\\_", "_", "__", "a:b", "a::b", "{a}:b", "a,b", "%s", "%(a)s"),
    # control characters and line ends
    *("\n", "a\nb", "a\r\nb", "a\tb", "\x01", "\x1b[31m", "\x7f", "\x85", "\u2028", "a\u202eb", "\ufeff", "a\u200bb"),
    # the same to the eye, or to a store that ignores case, normalises or trims
    *("case", "Case", "CASE", "caf\u00e9", "cafe\u0301", "\u212b", "\u00c5", "A\u030a", "stra\u00dfe", "strasse"),
    *("STRASSE", "i", "I", "\u0130", "\u0131", "K", "\u212a", "k", "\uff21", "\u0430", "1", "01", "1.0", "\u0661"),
    # both sides of the surrogates, and the last character of Unicode: the order around them is easy to get wrong
    *("\ud7ff", "\ud7ffa", "\ue000", "\uffff", "\uff5e", "\U00010000", "\U0010ffff", "\U0010ffff\U0010ffff"),
    # reserved names
    *("con", "NUL", "nul.txt", "aux", "com1", "lost+found", "index", "null", "None", "true", "undefined", "NaN"),
    *("__proto__", "constructor", "sqlite_master", "sessions", "rowid"),
    # long ones, which differ only at the end
    *("\N{GRINNING FACE}" * 200, "\N{GRINNING FACE}" * 199 + "\N{GRINNING FACE WITH SMILING EYES}"),
    *("x" * 200, "x" * 199 + "y", "../" * 66, "%" * 200, "'" * 200, "\U0010ffff" * 200),
)
"""Ids that are all different sessions."""

NEIGHBOURS = (
    ("case", "Case", "CASE", "cas", "case ", "case-1"),
    ("a%b", "a_b", "axb", "a*b", "a[x]b", "a?b", "ab", "a"),
    ("a/b", "a//b", "a\\b", "a%2Fb", "a%2fb", "a_b", "../a/b", "a/../a/b"),
    ("caf\u00e9", "cafe\u0301", "cafe", "CAF\u00c9"),
    ("\ud7ff", "\ud7ffa", "\ue000", "\uff5e", "\U00010000", "\U0010ffff", "\U0010ffff\U0010ffff"),
    ("x" * 200, "x" * 199 + "y", "x" * 199, "X" * 200),
)
"""Groups of ids that a careless store confuses."""

HOSTILE_LABELS = (
    *(("team", "claims"), ("team", "Claims"), ("team", "claim"), ("team", "claims "), ("team", ""), ("", "claims")),
    *(
        ("Team", "claims"),
        ("claims", "team"),
        ("team ", "claims"),
        ("a.b", "c"),
        ("a", "b.c"),
        ("$.a", "x"),
        ("$", "x"),
    ),
    *(("a[0]", "x"), ("a=b", "c"), ("a", "b=c"), ("a:b", "c"), ("a", "b:c"), ('"', '"'), ("'", "'"), ("\\", "\\")),
    *(('a":"b', "c"), ("a", 'b","c":"d'), ("%", "%"), ("_", "_"), ("*", "*"), ("' OR 1=1 --", "' OR 1=1 --")),
    *(("caf\u00e9", "caf\u00e9"), ("cafe\u0301", "cafe\u0301"), ("\N{GRINNING FACE}", "\N{GRINNING FACE}")),
    *(("a\nb", "c\nd"), ("n", "1"), ("n", "1.0"), ("n", "true"), ("n", "null"), ("x" * 200, "y" * 200)),
)
"""Pairs of a key and a value; no pair matches another."""

SAMPLE_BYTES = (
    *(b"{}", b"[]", b"null", b"0", b"-0.0", b'""', b"true", b"9223372036854775807", b"1e-320"),
    *(b'{"b":1,"a":2}', b'{"a": 1}', b" [ 1 ,\n2 ]\r\n\t", b'{"a":1,"a":2}', b"1.0", b"1.00", b"1E5"),
    *(rb'"\u0000"', rb'"a\u0000b"', rb'"\ud83d\ude00"', rb'"\/"', rb'"\"\\"', rb'"\n\r\t\b\f"', b'"%s \' ; -- $1"'),
    *('"caf\u00e9"'.encode(), '"cafe\u0301"'.encode(), '"\U0010ffff\u2028\x7f\ufeff"'.encode()),
    b'"' + b"x" * 70_000 + b'"',
    b"[" * 100 + b"]" * 100,
)
"""JSON texts that a store must return byte for byte, even where another text has the same meaning."""
