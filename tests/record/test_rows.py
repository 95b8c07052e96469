"""The rows of a session are read back as they were written, and nothing else is taken for one."""

import json
from dataclasses import MISSING, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midturn.errors import StateInvalid, UnknownVersion
from midturn.record.head import FORMAT, Kind, Row
from midturn.record.packing import Append
from midturn.record.rows import (
    BaseRow,
    CallRow,
    CheckpointRow,
    DecisionRow,
    FailureRow,
    KeyRow,
    Progress,
    Tombstone,
    TurnRow,
    decode_appends,
    decode_record,
    encode_record,
    key_number,
    plain_appends,
    task_digest,
)

SMALLEST = {
    Progress: Progress(),
    TurnRow: TurnRow(at=1.5),
    CheckpointRow: CheckpointRow(parent=0, skeleton=3, spans=[], bodies=4, at=2.5),
    CallRow: CallRow(path="model_client", what="model", key="00ff", spent=0.5, at=2.0),
    DecisionRow: DecisionRow(turn=1, question="May it?", kind="human", answer="yes", at=2.5),
    FailureRow: FailureRow(turn=1, status="failed", error="", at=3.5),
    KeyRow: KeyRow(key="k", turn=1, task="ab"),
    BaseRow: BaseRow(),
    Tombstone: Tombstone(),
}
FULL = {
    BaseRow: BaseRow(appends=[[0, 2, [5, 6]]]),
    Progress: Progress(
        turn=3,
        checkpoint=2,
        bodies=17,
        first=2,
        first_failure=1,
        holes=15,
        swept=9,
        logs=2,
        failures=1,
        calls=9,
        journal=7,
        generation=[2, 4],
        open="cancelled",
        decisions=3,
        attempts=2,
        attempted=1.5,
        answers=2,
        paid=[8, 3],
        blueprint="support",
        version=2,
        forked_from="case-41",
        forked_at=7,
        forked_when=2.5,
        restored=2,
        redacted=True,
    ),
    TurnRow: TurnRow(
        blueprint="support",
        version=2,
        at=1.5,
        task=[4, 5],
        key="order-7",
        repairs=["mended"],
        notes=["noted"],
        fingerprint=3,
        trace="00-ff-00-01",
        streamed=True,
        output_task_messages=False,
    ),
    CheckpointRow: CheckpointRow(
        parent=1,
        skeleton=9,
        spans=[[0, 4], [1, 2]],
        appends=[[0, 2, [5, 6]]],
        bodies=12,
        at=2.5,
        origin="import",
        blueprint="support",
        version=3,
        messages=[4, 6],
        stop_reason="max turns",
        usage=[10, 2],
        calls=[3, 5],
        notes=["asked again"],
        attempts=3,
        fingerprint=7,
        drift=["prompt of ann changed"],
        run="support-v3",
        restores=2,
        restored=1,
    ),
    CallRow: CallRow(
        path="participants/ann/workbench",
        what="tool",
        key="00ff",
        nth=1,
        stage="asked",
        spent=0.5,
        at=2.0,
        attempt=2,
        name="refund",
        about='{"order":"A1"}',
        effect="unsafe",
        value=[3, {"$": 4}],
        starts=["ff00"],
        instead=[0, 2],
    ),
    DecisionRow: DecisionRow(
        turn=4,
        question="May it?",
        kind="approval",
        agent="participants/ann",
        tool="refund",
        arguments={"order": "A1"},
        answer="approve",
        changed={"order": "C3"},
        by="ann@desk",
        why="the customer has called",
        at=2.5,
    ),
    FailureRow: FailureRow(
        turn=1, status="cancelled", error="ValueError: no", at=3, calls=[4, 6], attempts=2, usage=[8, 3]
    ),
    KeyRow: KeyRow(key="order-7", turn=4, task="00ff", calls=[{"path": "tools"}]),
    Tombstone: Tombstone(
        by="ann@desk", why="the customer has asked for it", forked_from="case-41", forked_at=7, forked_when=2.5
    ),
}
CLASSES = list(FULL)
EVERY = [*SMALLEST.values(), *FULL.values()]


def shown(record):
    return type(record).__name__


@pytest.mark.parametrize("record", EVERY, ids=shown)
def test_a_record_comes_back_as_it_was(record):
    assert decode_record(type(record), encode_record(record), "row") == record


@pytest.mark.parametrize("cls", CLASSES)
def test_what_has_its_default_is_left_out(cls):
    written = json.loads(encode_record(SMALLEST[cls]))
    assert set(written) == {"v"} | {field.name for field in fields(cls) if field.default is MISSING}


@pytest.mark.parametrize("cls", CLASSES)
def test_what_has_not_its_default_is_written(cls):
    written = json.loads(encode_record(FULL[cls]))
    assert set(written) == {"v"} | {field.name for field in fields(cls)}
    assert written["v"] == FORMAT


def test_the_bytes_of_a_checkpoint_are_these():
    assert encode_record(FULL[CheckpointRow]) == (
        b'{"v":1,"parent":1,"skeleton":9,"spans":[[0,4],[1,2]],"appends":[[0,2,[5,6]]],"bodies":12,"at":2.5,"origin":"import",'
        b'"blueprint":"support","version":3,"fingerprint":7,"drift":["prompt of ann changed"],"run":"support-v3",'
        b'"restores":2,"restored":1,'
        b'"messages":[4,6],"stop_reason":"max turns","usage":[10,2],'
        b'"calls":[3,5],"notes":["asked again"],"attempts":3}'
    )


def test_sequences_may_be_tuples_when_they_are_written():
    row = CheckpointRow(parent=0, skeleton=0, spans=([0, 1],), bodies=1, at=1.0, messages=(3,), usage=(1, 2))
    found = decode_record(CheckpointRow, encode_record(row), "row")
    assert (found.spans, found.messages, found.usage) == ([[0, 1]], [3], [1, 2])


def test_a_run_without_a_task_is_not_one_with_no_messages():
    without, empty = TurnRow(at=1.0), TurnRow(at=1.0, task=[])
    assert decode_record(TurnRow, encode_record(without), "row").task is None
    assert decode_record(TurnRow, encode_record(empty), "row").task == []


def changed(record, **changes):
    raw = json.loads(encode_record(record)) | changes
    return json.dumps({name: value for name, value in raw.items() if value is not MISSING}).encode()


@pytest.mark.parametrize("record", EVERY, ids=shown)
def test_an_unknown_key_is_refused_by_its_path(record):
    with pytest.raises(StateInvalid) as caught:
        decode_record(type(record), changed(record, surprise=1), "turn 3 of 's'")
    assert caught.value.path == "turn 3 of 's'.surprise"


NEEDED = [(cls, field.name) for cls in CLASSES for field in fields(cls) if field.default is MISSING]


@pytest.mark.parametrize(("cls", "name"), NEEDED)
def test_a_missing_key_is_refused_by_its_path(cls, name):
    with pytest.raises(StateInvalid) as caught:
        decode_record(cls, changed(FULL[cls], **{name: MISSING}), "row")
    assert caught.value.path == f"row.{name}"


WRONG = {
    "bool": [0, 1, "true", None, [True], {}],
    "int": [-1, 1.0, True, "1", None, [1], {}, 2**62],
    "int | None": [-1, 1.0, True, "1", None, [1], {}, 2**62],  # as below
    "float": ["1", None, True, [1.0], {}, -1.0, 1e12, 2**63],
    "str": [1, None, True, ["x"], {}],
    "str | None": [1, None, True, ["x"], {}],  # None is the default, and a default is never written
    "Origin": ["ran", "", None, 1, ["run"], {}],
    "Ended": ["running", "", None, 1, ["failed"], {}],
    "What": ["ran", "", None, 1, ["tool"], {}],
    "Stage": ["answered", "", None, 1, ["done"], {}],
    "Decided": ["answer", "", None, 1, ["human"], {}],
    "dict[str, Any] | None": [1, None, "12", []],
    "Effect": ["harmless", "", None, 1, ["read"], {}],
    "Sequence[Any]": [1, None, "12", {}],
    "Sequence[Any] | None": [1, None, "12", {}],
    "Opened | None": ["done", "", None, 1, [], {}],
    "Sequence[int]": [1, None, "12", {}, [-1], [1.0], [True], ["1"], [[1]], [2**62]],
    "CallRange": [1, None, "12", {}, [-1, 2], [1], [1, 2, 3], [2, 1], [1, True], [1, "2"], [1, 2**62]],
    "Pair": [1, None, "12", {}, [1], [1, 2, 3], [1, -2]],
    "Sequence[str]": [1, None, "12", {}, [1], [None], [["1"]]],
    "Sequence[int] | None": [1, None, "12", {}, [-1], [1.0], [True], ["1"], [None]],
    "Sequence[Span]": [1, None, "x", {}, [1], [[1]], [[1, 2, 3]], [[1, -2]], [[1, "2"]], [None]],
}
WRONGLY = [(cls, field.name, value) for cls in CLASSES for field in fields(cls) for value in WRONG[str(field.type)]]


@pytest.mark.parametrize(("cls", "name", "value"), WRONGLY)
def test_a_value_of_the_wrong_type_is_refused_by_its_path(cls, name, value):
    with pytest.raises(StateInvalid) as caught:
        decode_record(cls, changed(FULL[cls], **{name: value}), "row")
    assert caught.value.path == f"row.{name}"


@pytest.mark.parametrize("usage", [[], [1], [1, 2, 3]])
def test_a_usage_that_is_no_pair_is_refused_by_its_path(usage):
    with pytest.raises(StateInvalid) as caught:
        decode_record(CheckpointRow, changed(FULL[CheckpointRow], usage=usage), "row")
    assert caught.value.path == "row.usage"


@pytest.mark.parametrize("status", ["running", "failed", "cancelled"])
def test_an_open_turn_has_any_of_its_statuses(status):
    progress = Progress(turn=1, open=status)
    assert decode_record(Progress, encode_record(progress), "head") == progress


@pytest.mark.parametrize("version", [FORMAT + 1, 10**6])
@pytest.mark.parametrize("record", EVERY, ids=shown)
def test_a_newer_version_is_refused_before_anything_else_is_looked_at(record, version):
    with pytest.raises(UnknownVersion, match="upgrade") as caught:
        decode_record(type(record), changed(record, v=version, surprise=1), "turn 3")
    assert "turn 3" in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b"null",
        b"7",
        b"{}",
        b'{"v":"1"}',
        b'{"v":true}',
        b'{"v":1.0}',
        b'{"v":null}',
        b"\xff",
    ],
)
def test_what_is_no_record_is_refused_by_its_name(data):
    with pytest.raises(StateInvalid) as caught:
        decode_record(Progress, data, "head of 's'")
    assert caught.value.path == "head of 's'"


@given(st.binary(max_size=40) | st.recursive(st.integers() | st.text(), st.lists, max_leaves=3).map(json.dumps))
def test_no_bytes_end_in_another_error(data):
    data = data.encode(errors="replace") if isinstance(data, str) else data
    for cls in CLASSES:
        with pytest.raises((StateInvalid, UnknownVersion)):
            decode_record(cls, data, "row")
    with pytest.raises((StateInvalid, UnknownVersion)):
        decode_appends(Row(kind=Kind.CHECKPOINT, n=1, data=data))


small = st.integers(0, 2**40)


@given(st.lists(st.builds(Append, log=small, start=small, bodies=st.lists(small), parent=st.none() | small)))
def test_appends_come_back_as_they_were(appends):
    data = encode_record(
        CheckpointRow(parent=2, skeleton=1, spans=[], bodies=9, at=1.5, appends=plain_appends(appends))
    )
    assert decode_appends(Row(kind=Kind.CHECKPOINT, n=3, data=data)) == appends


def test_appends_are_written_like_this():
    appends = [Append(log=0, start=2, bodies=[5, 6]), Append(log=3, start=1, bodies=[], parent=0)]
    assert plain_appends(appends) == ([0, 2, [5, 6]], [3, 1, [], 0])


def test_a_checkpoint_that_appended_nothing_does_not_say_so():
    row = CheckpointRow(parent=2, skeleton=1, spans=[], bodies=9, at=1.5, appends=plain_appends([]))
    data = encode_record(row)
    assert b"appends" not in data
    assert decode_appends(Row(kind=Kind.CHECKPOINT, n=3, data=data)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        7,
        [7],
        [None],
        [[]],
        [[0, 1]],
        [[0, 1, [2], 3, 4]],
        [[0, 1, 2]],
        [[0, 1, None]],
        [[0, 1, [2], None]],
        [[-1, 1, [2]]],
        [[0, -1, [2]]],
        [[0, 1, [-2]]],
        [[0, 1, [2], -3]],
        [["0", 1, [2]]],
        [[0, 1.0, [2]]],
        [[0, 1, [True]]],
        [[0, 1, ["2"]]],
        [[0, 1, [2]], "x"],
    ],
)
def test_wrong_appends_are_refused_by_their_row(wrong):
    row = Row(kind=Kind.CHECKPOINT, n=3, data=json.dumps({"v": 1, "appends": wrong}).encode())
    with pytest.raises(StateInvalid) as caught:
        decode_appends(row)
    assert caught.value.path == "checkpoint row 3"


def test_appends_of_a_newer_version_are_refused():
    row = Row(kind=Kind.CHECKPOINT, n=3, data=b'{"v":2,"appends":[]}')
    with pytest.raises(UnknownVersion):
        decode_appends(row)


@pytest.mark.parametrize(
    ("key", "number"),
    [("", 4119008146064567469), ("order-7", 4210103920885054652), ("Übergröße ☃", 3772880543690695009)],
)
def test_where_a_key_stands_is_part_of_the_storage_format(key, number):
    assert key_number(key) == number


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_key_stands_where_every_store_can_put_it(key):
    assert 0 <= key_number(key) < 2**62
    assert key_number(key) == key_number(key)


@pytest.mark.parametrize(
    ("task", "digest"),
    [
        (None, "d9f16f6ef9a5bc1a9c0a2c98"),
        ([{"source": "user", "content": "hello", "type": "TextMessage"}], "93494b3e407f228ae5abfdec"),
    ],
)
def test_the_digest_of_a_task_is_part_of_the_storage_format(task, digest):
    assert task_digest(task) == digest


def test_tasks_that_differ_have_different_digests():
    tasks = [None, [], [{}], [{"a": 1}], [{"a": 1.0}], [{"a": True}], [{"a": "1"}], [{"a": 1}, {"a": 1}]]
    assert len({task_digest(task) for task in tasks}) == len(tasks)
