"""A value comes back exactly as it is, or is refused by name before anything is written."""

import enum
import json
import math
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midturn.errors import MidturnError, StateInvalid
from midturn.record.codec import MAX_BYTES, MAX_DEPTH, MAX_RECORD_DEPTH, decode, decode_foreign, encode
from midturn.record.packing import Archive

NAN, INFINITY = float("nan"), float("inf")
HALF = "\ud800"

unicode_text = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | unicode_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(unicode_text, inner, max_size=5),
    max_leaves=20,
)
poison = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([b"x", 2**63, NAN, HALF]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3) | st.none() | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


def same(one, other):
    """Equal, with the same types all the way down, the order of keys, and the sign of zero."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if type(one) is list:
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is float:
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return one == other


def nested(depth, wrap=lambda inner: [inner], innermost=0):
    value = innermost
    for _ in range(depth):
        value = wrap(value)
    return value


def refusal(value, **options):
    with pytest.raises(StateInvalid) as caught:
        encode(value, **options)
    return caught.value


@given(values)
@example([0.0, -0.0, 0, 5e-324, 1.7976931348623157e308, 1.0, True, 1, False, None])
@example(["\0", "a\0b", "\ud7ff\ue000\uffff\U0010ffff", "\u2028\x7f\ufeff", ""])
@example({"": {"\0": [], "\U0001f600": {}}, "b": 1, "a": 2})
def test_a_value_comes_back_with_its_types(value):
    data = encode(value)
    assert same(decode(data, "it"), value)
    assert same(decode_foreign(data, "it"), value)


@given(values, st.booleans())
def test_json_of_others_comes_back_too(value, ensure_ascii):
    data = json.dumps(value, ensure_ascii=ensure_ascii, indent=1).encode()
    assert same(decode_foreign(data, "it"), value)


@given(poison)
def test_anything_else_is_refused_and_never_changed(value):
    try:
        data = encode(value)
    except StateInvalid as error:
        assert error.path.startswith("$")  # noqa: PT017 - either outcome is fine
    else:
        assert same(decode(data, "it"), value)


@given(st.binary(max_size=40) | values.map(encode).map(lambda data: data[:-1]))
def test_bytes_are_json_or_refused(data):
    for read in (decode, decode_foreign):
        try:
            value = read(data, "row 7")
        except StateInvalid as error:
            assert error.path.startswith("row 7")  # noqa: PT017 - either outcome is fine
        else:
            assert same(decode(encode(value), "it"), value)


@pytest.mark.parametrize("number", [NAN, INFINITY, -INFINITY])
def test_numbers_that_json_does_not_have_are_refused(number):
    error = refusal({"a": [1, {"b": number}]})
    assert error.path == "$.a[1].b"
    assert str(error) == f"$.a[1].b: {number} is not a JSON number"


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**53 + 1, 0])
def test_integers_of_64_bits_are_exact(number):
    assert decode(encode([number]), "it") == [number]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**4_299, 10**4_300, -(10**5_000)], ids=int.bit_length)
def test_larger_integers_are_refused(number):
    assert str(refusal({"n": number})) == "$.n: an integer beyond 64 bits"


@pytest.mark.parametrize("text", [HALF, "a\udfffb", "\udc00\ud800", "x" * 1_000 + HALF], ids=len)
def test_half_of_a_surrogate_pair_is_refused(text):
    error = refusal(["fine", {"text": text}])
    assert error.path == "$[1].text"
    str(error).encode()


def test_nul_comes_back():
    value = {"a\0": "\0", "\0": ["a\0b"]}
    assert decode(encode(value), "it") == value


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["array", "object"])
def test_a_million_levels_are_refused_without_a_crash(wrap):
    error = refusal(nested(10**6, wrap))
    assert "nested deeper" in str(error)
    assert len(error.path) < 1_000


def test_the_deepest_value_comes_back_and_one_level_more_is_refused():
    for wrap in (lambda inner: [inner], lambda inner: {"a": inner}):
        for innermost in (0, "text", None):
            value = nested(MAX_DEPTH, wrap, innermost)
            assert decode(encode(value), "it") == value
            assert decode_foreign(encode(value), "it") == value
            assert "nested deeper" in str(refusal(nested(MAX_DEPTH + 1, wrap, innermost)))
        assert "nested deeper" in str(refusal(nested(MAX_DEPTH, wrap, innermost=[])))
    assert refusal(nested(MAX_DEPTH + 1)).path == "$" + "[0]" * MAX_DEPTH


def test_a_value_that_contains_itself_is_refused():
    circle = [1]
    circle.append({"again": circle, "and again": circle})
    assert "nested deeper" in str(refusal(circle))


@dataclass
class Point:
    x: int


class Color(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


class Weight(float):
    __slots__ = ()


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - the plain kind
FOREIGN = [
    *(b"bytes", bytearray(b"x"), memoryview(b"x"), {1}, frozenset(), (), (1, 2), Pair(1, 2), 1j, Decimal(1), object()),
    *(Color.RED, Number.ONE, Text("x"), Weight(1.0), Point(1), OrderedDict(), defaultdict(list), range(3), int, len),
    *(datetime.now(UTC), uuid.uuid4(), iter([])),
]


@pytest.mark.parametrize("value", FOREIGN, ids=lambda value: type(value).__name__)
def test_what_is_not_plain_json_is_refused_even_if_a_lenient_writer_would_take_it(value):
    error = refusal({"list": [0, value]})
    assert str(error) == f"$.list[1]: a {type(value).__name__} is not JSON"


@pytest.mark.parametrize(
    "key", [None, 1, 1.5, True, b"a", (), Text("a"), HALF, 10**5_000], ids=lambda key: type(key).__name__
)
def test_only_strings_are_keys(key):
    error = refusal({"a": {"fine": 1, key: 2}})
    assert error.path == "$.a"
    assert "key" in str(error)
    str(error).encode()


def test_the_first_problem_is_named_from_the_callers_path():
    error = refusal({"a": [0, {"b c": NAN}], "z": HALF}, path="turn 7")
    assert error.path == "turn 7.a[1].b c"
    assert isinstance(error, MidturnError)


def test_the_largest_value_comes_back_and_one_byte_more_is_refused():
    largest = "x" * (MAX_BYTES - 2)
    assert len(encode(largest)) == MAX_BYTES
    error = refusal(largest + "x", path="row")
    assert (error.path, f"{MAX_BYTES:,}" in str(error)) == ("row", True)
    # Two bytes for a character: bytes count, not characters.
    assert refusal("\u00e9" * (MAX_BYTES // 2)).path == "$"


BROKEN = [b"", b" ", b"{", b"[1,]", b"nul", b"'a'", b'{"a":1', b"[1] 2", b"\xff", b'"\xed\xa0\x80"', b'"\n"', b"01"]


@pytest.mark.parametrize(
    "data",
    [*BROKEN, b"NaN", b"[Infinity]", b"-Infinity", b'"\\ud800"', b"\x00", b"[" * 10**6],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_not_json_is_refused_with_its_name(data):
    for read in (decode, decode_foreign):
        with pytest.raises(StateInvalid) as caught:
            read(data, "head of 'case-42'")
        assert caught.value.path.startswith("head of 'case-42'")
        str(caught.value).encode()


@pytest.mark.parametrize("data", [b'{"a":1,"a":1}', b'[{"x":{"b":1,"a":2,"b":3}}]', rb'{"a":1,"\u0061":2}'])
def test_a_key_that_stands_twice_in_foreign_json_is_refused(data):
    with pytest.raises(StateInvalid, match="occurs twice"):
        decode_foreign(data, "state.json")


def test_a_key_that_stands_twice_among_many_is_found_at_once():
    names = [f'"{number}":0' for number in range(100_000)]
    data = ("{" + ",".join([*names, names[-1]]) + "}").encode()
    with pytest.raises(StateInvalid, match="'99999' occurs twice"):
        decode_foreign(data, "state.json")


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b'{"a":[1e999]}', "state.json $.a[0]"),
        (b'{"a":[-1e999]}', "state.json $.a[0]"),
        (b'{"n":9223372036854775808}', "state.json $.n"),
        (b"[1" + b"0" * 4_299 + b"]", "state.json $[0]"),
        (b"[1" + b"0" * 4_300 + b"]", "state.json"),
        (rb'{"t":"\udfff"}', "state.json $.t"),
        (rb'{"\ud800":1}', "state.json $"),
        (b"[" * 500 + b"]" * 500, "state.json $" + "[0]" * MAX_DEPTH),
        (b'{"a":NaN}', "state.json"),
    ],
    ids=lambda part: part[:24] if isinstance(part, str) else "",
)
def test_foreign_json_is_held_to_the_same_rules(data, path):
    with pytest.raises(StateInvalid) as caught:
        decode_foreign(data, "state.json")
    assert caught.value.path == path


@pytest.mark.parametrize("levels", [MAX_RECORD_DEPTH + 1, 300, 1_000, 100_000])
@pytest.mark.parametrize("wrap", ["[%b]", '{"d":%b}', '[1,{"d":[[],%b]},"x"]'])
def test_a_record_that_is_nested_deeper_than_any_is_refused_by_its_name(levels, wrap):
    begin, end = wrap.encode().split(b"%b")
    steps = levels // (begin.count(b"[") + begin.count(b"{") - begin.count(b"[]"))
    with pytest.raises(StateInvalid, match=r"^row: .*(nested|depth)"):
        decode(begin * (steps + 1) + b"7" + end * (steps + 1), "row")


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"d": value}])
def test_whatever_is_written_is_shallow_enough_to_be_read(wrap):
    value = "a text that is long enough to be a body of its own"
    for _ in range(MAX_DEPTH):
        value = wrap(value)
    archive = Archive()
    archive.message({"a": value["d"] if isinstance(value, dict) else value[0]}, "$")
    archive.pack({"state": value["d"] if isinstance(value, dict) else value[0]})
    for row in archive.new_bodies():
        assert decode(row.data, "row")
