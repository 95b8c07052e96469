"""A state is taken apart and put together again exactly, each checkpoint by itself, and nothing is stored twice."""

import json
from copy import deepcopy
from dataclasses import dataclass, replace
from types import SimpleNamespace

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midturn.errors import StateInvalid
from midturn.record import codec
from midturn.record.bodies import Bodies
from midturn.record.codec import difference
from midturn.record.head import Kind, Row
from midturn.record.packing import LONG, MAX_SHARING, Append, Archive, Grown, as_json, restore
from midturn.record.rows import decode_appends, plain_appends


def bodies_of(values):
    bodies = Bodies()
    bodies.values += values
    return bodies


def read_bodies(rows):
    bodies = Bodies()
    bodies.extend(rows)
    return bodies


@dataclass
class Checkpoint:
    skeleton: int
    spans: list
    bodies: int
    logs: int


def appending(appends):
    """Return the part of a checkpoint's row that says what it appended."""
    return orjson.dumps({"v": 1, "appends": plain_appends(appends)})


class Stored:
    """The rows of a session as a store would hold them: bytes, written one checkpoint after the other."""

    def __init__(self):
        self.bodies = []
        self.logs = []
        self.checkpoints = []

    def write(self, archive, tree):
        packed = archive.pack(tree)
        archive.keep(packed)
        new = archive.new_bodies()
        self.bodies += new
        log = Row(kind=Kind.CHECKPOINT, n=len(self.logs), data=appending(packed.appends))
        self.logs.append(log)
        self.checkpoints.append(
            Checkpoint(packed.skeleton, [list(span) for span in packed.spans], archive.bodies, archive.logs)
        )
        return packed, new

    def read(self, number, archive=None, *, later=False):
        """A checkpoint as ``midturn.history.read_checkpoint`` reads it; ``later`` rows may be there already."""
        archive = Archive() if archive is None else archive
        at = self.checkpoints[number]
        bodies = [row for row in self.bodies if later or row.n < at.bodies]
        logs = self.logs if later else self.logs[: number + 1]
        archive.logs = at.logs
        known = read_bodies(bodies)
        archive.learn_bodies(known, len(known.values))
        return restore(
            skeleton=at.skeleton,
            spans=[(log, length) for log, length in at.spans],
            bodies=known,
            logs=[decode_appends(row) for row in logs],
            archive=archive,
        )

    def known(self):
        return read_bodies(self.bodies)


def packed_one_after_another(states):
    stored, archive = Stored(), Archive()
    for tree in states:
        stored.write(archive, deepcopy(tree))
    return stored


def exact(tree):
    """Bytes that tell 1, 1.0 and true apart, and the order of keys."""
    return orjson.dumps(tree)


def text(content):
    return {"source": "user", "content": content, "type": "TextMessage"}


KEYS = ["", "$", "$$", "$log", "$$log", "log", "$$x", "a", "b", "a.b", "a[0]", "messages", "K" * LONG]
TEXTS = ["", "$", "$log", "x" * (LONG - 1), "x" * LONG, "y" * (LONG + 1), "é" * LONG, "n" * 1000]

keys = st.sampled_from(KEYS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(0, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(TEXTS)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
messages = st.sampled_from(
    [text("hello"), text("x" * LONG), {}, {"$": 3}, {"$log": 0}, {"$$log": {"$": 0}}, {"a": [{"$": 1}]}]
) | st.dictionaries(keys, values, max_size=3)
PLACES = [("messages",), ("a.b",), ("$log",), ("a", "b"), ("a", "$"), ("$", "$log"), ("agents", "ann", "messages")]


@st.composite
def changed(draw, now, items):
    how = draw(st.sampled_from(["keep", "grow", "grow", "grow", "cut", "edit", "insert", "last", "empty"]))
    index = draw(st.integers(0, len(now)))
    new = draw(st.lists(items, min_size=1, max_size=3))
    return {
        "keep": now,
        "grow": now + new,
        "cut": now[:index],
        "edit": [*now[:index], new[0], *now[index + 1 :]],
        "insert": [*now[:index], *new, *now[index:]],
        "last": [*now[:-1], new[0]],
        "empty": [],
    }[how]


@st.composite
def histories(draw, items=messages):
    """Several lists, each changed a little from state to state, and something beside them."""
    lists = {place: draw(st.lists(items, max_size=4)) for place in draw(st.sets(st.sampled_from(PLACES), max_size=4))}
    states = []
    for _ in range(draw(st.integers(1, 8))):
        for place in sorted(lists):
            lists[place] = draw(changed(lists[place], items))
        tree = {"beside": draw(values)}
        for place, now in lists.items():
            parent = tree
            for name in place[:-1]:
                parent = parent.setdefault(name, {})
            parent[place[-1]] = list(now)
        states.append({"state": tree})
    return states


@given(histories())
def test_every_state_of_a_history_comes_back_exactly_and_directly(states):
    stored = packed_one_after_another(states)
    for number, tree in enumerate(states):
        assert exact(stored.read(number)) == exact(tree)


@given(histories())
def test_rows_written_later_do_not_change_an_earlier_state(states):
    stored = packed_one_after_another(states)
    for number, tree in enumerate(states):
        assert exact(stored.read(number, later=True)) == exact(tree)


@given(st.lists(values, min_size=1, max_size=4))
def test_any_json_value_is_a_state(trees):
    stored = packed_one_after_another(trees)
    assert [exact(stored.read(number)) for number in range(len(trees))] == [exact(tree) for tree in trees]


@given(histories(), st.data())
def test_a_restored_archive_goes_on_exactly_as_the_original_would(states, data):
    original = packed_one_after_another(states)
    at = data.draw(st.integers(0, len(states) - 1))
    archive, stored = Archive(), Stored()
    original.read(at, archive)
    stored.bodies = [row for row in original.bodies if row.n < original.checkpoints[at].bodies]
    stored.logs, stored.checkpoints = original.logs[: at + 1], original.checkpoints[: at + 1]
    for tree in states[at + 1 :]:
        stored.write(archive, deepcopy(tree))
    assert stored.bodies == original.bodies
    assert stored.logs == original.logs
    assert stored.checkpoints == original.checkpoints


@given(histories())
def test_no_body_is_stored_twice(states):
    bodies = [exact(value) for value in packed_one_after_another(states).known().values]
    assert len(set(bodies)) == len(bodies)


@given(histories())
def test_the_rows_of_bodies_follow_each_other_without_gaps(states):
    stored = packed_one_after_another(states)
    end = 0
    for row in stored.bodies:
        assert row.kind == Kind.BODY
        assert row.n == end
        end += len(json.loads(row.data)["bodies"])
    assert end == stored.checkpoints[-1].bodies


def test_the_same_state_again_stores_nothing_new():
    stored, archive = Stored(), Archive()
    tree = {"state": {"messages": [text("one"), text("two " * LONG)], "turn": 1}}
    stored.write(archive, tree)
    packed, new = stored.write(archive, deepcopy(tree))
    assert new == []
    assert packed.appends == []


def test_a_grown_list_appends_only_what_is_new():
    stored, archive = Stored(), Archive()
    said = [text(f"number {n}") for n in range(30)]
    counts = []
    for turn in range(1, 11):
        packed, new = stored.write(archive, {"messages": said[: 3 * turn]})
        [append] = packed.appends
        assert (append.log, append.start, append.parent) == (0, 3 * (turn - 1), None)
        assert len(append.bodies) == 3
        counts.append(sum(len(json.loads(row.data)["bodies"]) for row in new))
    assert counts == [5, *[3] * 9]  # at first also the names of the messages' keys and the skeleton


def test_a_list_changed_in_its_middle_shares_its_beginning():
    stored, archive = Stored(), Archive()
    said = [text(f"number {n}") for n in range(10)]
    stored.write(archive, {"messages": said})
    packed, _ = stored.write(archive, {"messages": [*said[:6], text("other"), *said[7:]]})
    [append] = packed.appends
    assert (append.log, append.start, append.parent, len(append.bodies)) == (1, 6, 0, 4)


def test_a_plain_list_changed_in_place_is_noticed():
    stored, archive = Stored(), Archive()
    tree = {"messages": [text("one"), text("two")]}
    first = deepcopy(tree)
    stored.write(archive, tree)
    tree["messages"][0]["content"] = "changed"
    stored.write(archive, tree)
    assert stored.read(0) == first
    assert stored.read(1) == tree


def test_the_names_of_an_object_of_numbers_are_stored_once():
    messages = [{"usage": {"prompt_tokens": i, "completion_tokens": -i, "cost": 0.5}} for i in range(5)]
    stored = packed_one_after_another([{"state": {"list": messages}}])
    assert stored.read(0) == {"state": {"list": messages}}
    assert b"".join(row.data for row in stored.bodies).count(b"prompt_tokens") == 1


def test_bodies_are_put_into_rows_of_a_good_size():
    sizes = [100, 1900, 200, 200, 1700, 5000, 10]
    stored = packed_one_after_another([{"state": [chr(97 + i) * size for i, size in enumerate(sizes)]}])
    assert [row.n for row in stored.bodies] == [0, 1, 2, 4, 5, 6]
    assert stored.read(0) == {"state": [chr(97 + i) * size for i, size in enumerate(sizes)]}


def test_messages_of_one_form_share_nothing_that_can_be_changed():
    bodies = bodies_of([["content", ["items", []], ["metadata", {}]], [0, "x"], [0, "y"]])
    first = bodies.message(1, "first")
    first["items"].append(1)
    first["metadata"]["a"] = 1
    assert bodies.message(2, "second") == {"content": "y", "items": [], "metadata": {}}
    assert list(first) == ["content", "items", "metadata"]


@pytest.mark.parametrize("keys", [[], [99, 1], [True, 1], [0], [0, 1, 2], ["0", 1]])
def test_an_object_of_numbers_without_its_names_is_found(keys):
    values = [["prompt_tokens"], ["content"], [1, {"$": keys}]]
    with pytest.raises(StateInvalid, match="form is missing"):
        bodies_of(values).message(2, "message")
    assert bodies_of([*values[:2], [1, {"$": [0, 7]}]]).message(2, "message") == {"content": {"prompt_tokens": 7}}


def test_the_same_long_text_everywhere_is_stored_once():
    stored, archive = Stored(), Archive()
    long = "the same text stands in contexts, threads and results " * 3
    stored.write(archive, {"a": [text(long)], "b": [{"role": long}], "c": long, "d": {"e": [long, [long]]}})
    assert sum(long.encode() in row.data for row in stored.bodies) == 1
    assert stored.bodies[0].data.count(long.encode()) == 1


@pytest.mark.parametrize(("length", "alone"), [(LONG - 1, False), (LONG, True), (LONG + 1, True)])
def test_a_string_from_the_threshold_on_is_a_body_of_its_own(length, alone):
    stored = packed_one_after_another([{"note": "n" * length}])
    assert ("n" * length in stored.known().values) == alone
    assert stored.read(0) == {"note": "n" * length}


@example([("a", "b"), ("a.b",)])
@given(st.lists(st.sampled_from([("a", "b"), ("a.b",), ("a", "b.c"), ("a.b.c",)]), min_size=2, max_size=2, unique=True))
def test_lists_whose_keys_contain_dots_are_not_taken_for_each_other(places):
    def tree(*lists):
        found = {}
        for place, items in zip(places, lists, strict=True):
            parent = found
            for name in place[:-1]:
                parent = parent.setdefault(name, {})
            parent[place[-1]] = items
        return found

    both = text("to both")
    states = [tree([both], [both]), tree([both, text("to one")], [both, text("to the other")])]
    stored = packed_one_after_another(states)
    assert [stored.read(0), stored.read(1)] == states


def test_a_list_whose_last_item_is_replaced_every_turn_comes_back_at_each_checkpoint():
    begin = [text(f"beginning {n}") for n in range(5)]
    states = [{"messages": [*begin, text(f"draft {turn}")]} for turn in range(50)]
    stored = packed_one_after_another(states)
    for number, tree in enumerate(states):
        assert exact(stored.read(number)) == exact(tree)


def test_no_log_takes_its_beginning_from_a_longer_row_than_the_limit():
    begin = [text("beginning")]
    stored = packed_one_after_another([{"messages": [*begin, text(f"draft {turn}")]} for turn in range(50)])
    appends = [append for row in stored.logs for append in decode_appends(row)]
    depths = {}
    for append in appends:
        depths[append.log] = 0 if append.parent is None else depths[append.parent] + 1
    assert len(depths) == 50
    assert max(depths.values()) == MAX_SHARING
    assert sum(depth == 0 for depth in depths.values()) == 6  # 50 logs in rows of 9


@dataclass(eq=False)
class Said:
    """A live message: equal to itself alone."""

    content: dict


class Dumping:
    def __init__(self):
        self.count = 0

    def __call__(self, item):
        self.count += 1
        return item.content


@given(histories(messages.map(Said)))
def test_live_lists_come_back_and_only_new_items_are_dumped(states):
    stored, archive, dumping = Stored(), Archive(), Dumping()

    def live(value):
        if isinstance(value, dict):
            return {key: live(item) for key, item in value.items()}
        if isinstance(value, list) and all(isinstance(item, Said) for item in value):
            return Grown(value, dumping)
        return value

    def grown(value, path=()):
        if isinstance(value, Grown):
            return {path: list(value.items)}
        found = {}
        for key, item in value.items() if isinstance(value, dict) else ():
            found |= grown(item, (*path, key))
        return found

    before = {}
    for number, raw in enumerate(states):
        tree = live(raw)
        dumping.count = 0
        stored.write(archive, tree)
        expected = 0
        for path, items in (now := grown(tree)).items():
            old = before.get(path, [])
            expected += len(items) - len(old) if items[: len(old)] == old else len(items)
        assert dumping.count == expected
        before = now
        assert exact(stored.read(number)) == exact(as_json(tree))


def test_a_restored_archive_that_adopts_the_live_lists_dumps_only_new_items():
    stored, archive, dumping = Stored(), Archive(), Dumping()
    said = [Said(text(f"number {n}")) for n in range(10)]
    stored.write(archive, {"state": {"messages": Grown(said[:8], dumping)}})
    again = Archive()
    stored.read(0, again)
    again.adopt({"state": {"messages": Grown(said[:8], dumping)}})
    dumping.count = 0
    packed, _ = stored.write(again, {"state": {"messages": Grown(said, dumping)}})
    assert dumping.count == 2
    assert [(append.log, append.start, len(append.bodies)) for append in packed.appends] == [(0, 8, 2)]
    assert stored.read(1) == {"state": {"messages": [item.content for item in said]}}


def test_a_restored_archive_without_live_lists_looks_at_every_item_and_still_stores_only_new_ones():
    stored, archive, dumping = Stored(), Archive(), Dumping()
    said = [Said(text(f"number {n}")) for n in range(10)]
    stored.write(archive, {"messages": Grown(said[:8], dumping)})
    again = Archive()
    stored.read(0, again)
    dumping.count = 0
    packed, _ = stored.write(again, {"messages": Grown(said, dumping)})
    assert dumping.count == 10
    assert [(append.log, append.start, len(append.bodies)) for append in packed.appends] == [(0, 8, 2)]


def test_a_live_list_does_not_follow_what_is_appended_after_packing():
    stored, archive, dumping = Stored(), Archive(), Dumping()
    said = [Said(text("one"))]
    stored.write(archive, {"messages": Grown(said, dumping)})
    said.append(Said(text("two")))
    packed, _ = stored.write(archive, {"messages": Grown(said, dumping)})
    assert [len(append.bodies) for append in packed.appends] == [1]
    assert [len(stored.read(number)["messages"]) for number in range(2)] == [1, 2]


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        ({object(): "x"}, "$"),
        ({"a": {None: object()}}, "$.a"),
        ({"a": {"\ud800": {object()}}}, "$.a"),
        ({"a": [1, {object()}]}, "$.a[1]"),
        ({"a": [{"b": b"x"}, {"c": object()}]}, "$.a[1].c"),
        ({"a": Grown(["x"], lambda item: item)}, "$.a[0]"),
        ({"a": Grown(["x"], lambda item: {"b": object()})}, "$.a[0].b"),
    ],
)
def test_what_no_record_can_carry_is_refused_by_its_path(bad, path):
    with pytest.raises(StateInvalid) as caught:
        Archive().pack(bad)
    assert caught.value.path.startswith(path)


def test_objects_are_taken_up_to_the_limit_of_depth_and_no_deeper():
    def nested(depth):
        tree = 0
        for _ in range(depth):
            tree = {"a": tree}
        return tree

    deepest = nested(codec.MAX_DEPTH)
    assert packed_one_after_another([deepest]).read(0) == deepest
    with pytest.raises(StateInvalid, match="deeper"):
        Archive().pack(nested(codec.MAX_DEPTH + 1))


def test_a_message_that_is_no_object_is_refused():
    with pytest.raises(StateInvalid) as caught:
        Archive().message(["x"], "task[0]")
    assert caught.value.path == "task[0]"


def sample():
    """Three checkpoints: one list that grows, one that is changed in its middle and so has two logs."""
    said = [text(f"number {n} {'x' * LONG}") for n in range(6)]
    states = [
        {"state": {"a": said[:2], "b": said[:4], "note": "n" * LONG}},
        {"state": {"a": said[:3], "b": [said[0], said[5]], "note": "short"}},
        {"state": {"a": said, "b": [said[0], said[5], said[1]], "note": "n" * LONG}},
    ]
    return packed_one_after_another(states), states


def test_the_sample_is_good_before_it_is_damaged():
    stored, states = sample()
    assert [stored.read(number) for number in range(3)] == states


@pytest.mark.parametrize("missing", range(3))
def test_a_missing_row_of_bodies_is_found(missing):
    stored, _ = sample()
    assert len(stored.bodies) == 3
    del stored.bodies[missing]
    with pytest.raises(StateInvalid):
        stored.read(2)


@pytest.mark.parametrize("missing", range(3))
def test_a_missing_row_of_logs_is_found(missing):
    stored, _ = sample()
    del stored.logs[missing]
    with pytest.raises(StateInvalid, match="log"):
        stored.read(2, later=True)


def test_a_shortened_log_is_found():
    stored, _ = sample()
    for number, row in enumerate(stored.logs):
        appends = decode_appends(row)
        for index, append in enumerate(appends):
            shorter = [*appends[:index], append._replace(bodies=append.bodies[:-1]), *appends[index + 1 :]]
            damaged, _ = sample()
            damaged.logs[number] = replace(row, data=appending(shorter))
            # Of the second list's first log only the beginning is still in use.
            if (number, append.log) != (0, 1):
                with pytest.raises(StateInvalid):
                    damaged.read(2)


@pytest.mark.parametrize("start", [0, 1, 3, 10**6])
def test_an_append_in_the_wrong_place_is_found(start):
    stored, _ = sample()
    [first, *others] = decode_appends(stored.logs[1])
    assert (first.log, first.start) == (0, 2)
    stored.logs[1] = replace(stored.logs[1], data=appending([first._replace(start=start), *others]))
    with pytest.raises(StateInvalid):
        stored.read(2)


@pytest.mark.parametrize("parent", [0, 1, 2, 99])
def test_logs_that_take_their_beginning_from_themselves_or_nowhere_are_found(parent):
    values = [["content"], [0, "x"]]
    logs = [[Append(log=0, start=1, bodies=[1], parent=1), Append(log=1, start=1, bodies=[1], parent=parent)]]
    with pytest.raises(StateInvalid):
        restore(skeleton=0, spans=[(0, 2)], bodies=bodies_of(values), logs=logs, archive=Archive())


@pytest.mark.parametrize("skeleton", [-1, 10**6])
def test_a_skeleton_out_of_range_is_found(skeleton):
    stored, _ = sample()
    stored.checkpoints[2].skeleton = skeleton
    with pytest.raises(StateInvalid):
        stored.read(2)


@pytest.mark.parametrize("span", [[0, 7], [9, 1], [-1, 1], [0, 10**9]])
def test_a_span_out_of_range_is_found(span):
    stored, _ = sample()
    stored.checkpoints[2].spans[0] = span
    with pytest.raises(StateInvalid):
        stored.read(2)


def test_a_list_that_the_checkpoint_does_not_name_is_found():
    stored, _ = sample()
    del stored.checkpoints[2].spans[1]
    with pytest.raises(StateInvalid, match="list"):
        stored.read(2)


@pytest.mark.parametrize("number", [-1, 10**6])
def test_a_body_number_out_of_range_is_found(number):
    stored, _ = sample()
    [first, *others] = decode_appends(stored.logs[2])
    bodies = [number, *first.bodies[1:]]
    logs = [decode_appends(row) for row in stored.logs[:2]] + [[first._replace(bodies=bodies), *others]]
    at = stored.checkpoints[2]
    with pytest.raises(StateInvalid):
        restore(skeleton=at.skeleton, spans=at.spans, bodies=stored.known(), logs=logs, archive=Archive())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"7", b"null", b'"x"', b"{}", b'{"v":1}', b'{"v":1,"bodies":{}}', b'{"v":1,"bodies":7}']
)
def test_a_row_of_bodies_that_is_none_is_found(data):
    with pytest.raises(StateInvalid) as caught:
        read_bodies([Row(kind=Kind.BODY, n=0, data=data)])
    assert caught.value.path == "body 0"


@pytest.mark.parametrize(
    "values",
    [
        [["content"], "no message"],
        [["content"], []],
        [["content"], {}],
        [["content"], ["x"]],
        [["content"], [True, "x"]],
        [["content"], [0]],
        [["content"], [0, "x", "y"]],
        [["content"], [2, "x"]],
        [["content"], [-1, "x"]],
        ["content", [0, "x"]],
        [{"content": 1}, [0, "x"]],
        [[["content"]], [0, "x"]],
        [[{"content": 1}], [0, "x"]],
        [[1], [0, "x"]],
        [[None], [0, "x"]],
        [["content"], [0, {"$": 5}]],
        [["content"], [0, {"$": -1}]],
        [["content"], [0, {"$": 0}]],
        [["content"], [0, {"$": "0"}]],
        [["content"], [0, {"$": None}]],
        [["content"], [0, {"$": [0]}]],
        [["content"], [0, [{"a": {"$": 0}}]]],
    ],
)
def test_a_body_that_is_no_message_is_found(values):
    with pytest.raises(StateInvalid) as caught:
        bodies_of(values).message(1, "$.messages[0]")
    assert caught.value.path == "$.messages[0]"


@pytest.mark.parametrize("index", [-1, 1, "0", None, 0.0, [0], {}])
def test_a_skeleton_that_names_a_list_wrongly_is_found(index):
    logs = [[Append(log=0, start=0, bodies=[1])]]
    values = [["content"], [0, "x"], {"messages": {"$log": index}}]
    with pytest.raises(StateInvalid) as caught:
        restore(skeleton=2, spans=[(0, 1)], bodies=bodies_of(values), logs=logs, archive=Archive())
    assert caught.value.path == "$.messages"


damaged_values = values | st.sampled_from([{"$": 0}, {"$log": 0}, [0, 0], [[]], [{}], [0, {"$": 2}]])


@given(st.data())
def test_no_damage_ends_in_another_error(data):
    stored, _ = sample()
    row = data.draw(st.integers(0, 2))
    bodies = json.loads(stored.bodies[row].data)["bodies"]
    for _ in range(data.draw(st.integers(1, 3))):
        bodies[data.draw(st.integers(0, len(bodies) - 1))] = data.draw(damaged_values)
    stored.bodies[row] = replace(stored.bodies[row], data=orjson.dumps({"v": 1, "bodies": bodies}))
    log = data.draw(st.integers(0, 2))
    appends = decode_appends(stored.logs[log])
    index = data.draw(st.integers(0, len(appends) - 1))
    small = st.integers(0, 20)
    appends[index] = data.draw(
        st.just(appends[index])
        | st.builds(Append, log=small, start=small, bodies=st.lists(small), parent=st.none() | small)
    )
    stored.logs[log] = replace(stored.logs[log], data=appending(appends))
    try:
        stored.read(2)
    except StateInvalid as error:
        assert str(error)  # noqa: PT017 - a state that happens to be whole is as good


@given(values)
def test_a_value_does_not_differ_from_itself(value):
    assert difference(value, deepcopy(value)) is None


@given(values, values)
def test_two_values_differ_somewhere_exactly_when_they_are_not_equal(one, other):
    def typed(value):
        """Equal exactly for equal values of equal types; the order of keys and the sign of zero do not count."""
        if isinstance(value, dict):
            return {key: typed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [typed(item) for item in value]
        return (type(value), value)

    assert (difference(one, other) is None) == (typed(one) == typed(other))


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        (1, 1.0, "$"),
        (0, False, "$"),
        ({}, [], "$"),
        ({"a": 1}, {}, "$.a"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None),
        ({"b": 1, "a": 1}, {"b": 2, "a": 2}, "$.a"),
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, "$.a[1].b"),
        ([1, 2], [1], "$[1]"),
        ([], [1], "$[0]"),
        ([1, 2, 3], [1, 9], "$[1]"),
        ({"a": None}, {}, "$.a"),
    ],
)
def test_a_difference_is_named_by_its_path(one, other, where):
    assert difference(one, other) == where


def test_plain_dumps_the_live_lists_wherever_they_stand():
    tree = {"a": {"b": Grown([1, 2], lambda item: {"n": item})}, "c": [1], "d": Grown([], lambda item: item)}
    assert as_json(tree) == {"a": {"b": [{"n": 1}, {"n": 2}]}, "c": [1], "d": []}


def test_a_state_that_was_not_kept_leaves_no_trace():
    archive, stored, items = Archive(), Stored(), [{"content": "a"}, {"content": "b"}]
    tree = {"live": Grown(items, dict), "plain": [{"content": "a"}]}
    stored.write(archive, tree)
    lost = archive.pack({"live": Grown([*items, items[0], items[1]], dict), "plain": [{"content": "b"}]})
    again = archive.pack({"live": Grown([*items, items[1]], dict), "plain": [{"content": "b"}]})
    assert [append.bodies for append in again.appends] == [lost.appends[0].bodies[1:], lost.appends[1].bodies]
    items.append(items[0])
    stored.write(archive, tree)
    assert stored.read(1) == as_json(tree)
    assert [log.log for log in again.appends] == [0, 2]


def test_a_long_text_is_encoded_once_and_not_copied():
    encoded = []
    dumps = orjson.dumps

    def noted(*args, **options):
        encoded.append(dumps(*args, **options))
        return encoded[-1]

    archive = Archive()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("midturn.record.packing.orjson", SimpleNamespace(dumps=noted))
        archive.message(text("x" * 1_000_000), "$")
    [row] = [row for row in archive.new_bodies() if len(row.data) > 1_000_000]
    assert [each is row.data for each in encoded if len(each) > 1_000_000] == [True]


def test_bodies_whose_write_had_no_effect_are_new_again():
    archive = Archive()
    for content in ("short", "x" * 5_000, "é" * 3_000, "also short"):
        archive.message(text(content), "$")
    rows = archive.new_bodies()
    archive.take_back()
    assert archive.stored == 0
    assert archive.new_bodies() == rows
    assert [body for row in rows for body in orjson.loads(row.data)["bodies"]] == read_bodies(rows).values


def test_bodies_can_be_written_in_parts():
    archive, whole = Archive(), Archive()
    rows = []
    for content in ("short", "x" * 5_000, "also short", "y" * 5_000):
        whole.message(text(content), "$")
        archive.message(text(content), "$")
        mark = archive.bodies
        archive.message(text(f"later {content}"), "$")
        rows += archive.new_bodies(mark)
        assert archive.stored == mark
        rows += archive.new_bodies()
    assert [row.n for row in rows] == sorted({row.n for row in rows})
    assert len(read_bodies(rows).values) == archive.bodies
    known = Archive()
    known.learn_bodies(read_bodies(rows), archive.bodies)
    assert known.message(text("x" * 5_000), "$") == archive.message(text("x" * 5_000), "$")
    assert known.new_bodies() == []


FORGED_APPENDS = {
    "a log that is its own parent": [Append(0, 0, [1, 2], 0)],
    "logs that are each other's parents": [Append(1, 0, [1], 0), Append(0, 0, [2], 1)],
    "a log that begins many times": [Append(0, 0, [1])] + [Append(1, 1, [], 0)] * 1000,
}


@pytest.mark.parametrize("appends", FORGED_APPENDS.values(), ids=FORGED_APPENDS)
def test_logs_that_would_take_for_ever_to_read_are_refused(appends):
    with pytest.raises(StateInvalid, match="begins twice, or with a later log"):
        restore(skeleton=0, spans=[[1, 5]], bodies=bodies_of([{}]), logs=[appends], archive=Archive())


FORGED_SKELETONS = {
    "the same list many times": ({"a": {"$log": 0}, "b": {"$log": 0}}, [[0, 2]]),
    "lists in another order": ({"a": {"$log": 1}, "b": {"$log": 0}}, [[0, 2], [1, 2]]),
    "a list that nobody uses": ({"a": {"$log": 0}}, [[0, 2], [1, 2]]),
    "a log for two lists": ({"a": {"$log": 0}, "b": {"$log": 1}}, [[0, 2], [0, 2]]),
    "a list whose number is a truth": ({"a": {"$log": False}}, [[0, 2]]),
}


@pytest.mark.parametrize(("skeleton", "spans"), FORGED_SKELETONS.values(), ids=FORGED_SKELETONS)
def test_a_skeleton_that_does_not_use_each_list_once_is_refused(skeleton, spans):
    bodies = bodies_of([skeleton, ["text"], [1, "x"]])
    logs = [[Append(0, 0, [2, 2]), Append(1, 0, [2, 2])]]
    with pytest.raises(StateInvalid):
        restore(skeleton=0, spans=spans, bodies=bodies, logs=logs, archive=Archive())


@pytest.mark.parametrize("value", [[1], {"a": []}, 7, True, [[]]])
def test_a_form_with_a_value_that_no_form_has_is_refused(value):
    with pytest.raises(StateInvalid, match="form is missing or damaged"):
        bodies_of([[["key", value]], [0]]).message(1, "$")


def test_a_state_is_nested_no_deeper_than_the_limit_as_a_whole():
    tree = []
    for _ in range(60):
        tree = [tree]
    for _ in range(60):
        tree = {"d": tree}
    with pytest.raises(StateInvalid, match="nested deeper than 100 levels"):
        Archive().pack(tree)
