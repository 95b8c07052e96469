"""Ids that every store can keep, and what a write and a deletion make of a head."""

import dataclasses

import pytest

from midturn.errors import InvalidArgument, StateInvalid
from midturn.record.head import FORMAT, MAX_ID, Head, Kind, Row, Write, check_id
from midturn.testing import a_removal, a_row, a_write
from midturn.testing.samples import HOSTILE_IDS


@pytest.mark.parametrize("session", [*HOSTILE_IDS, "case-42", "x" * MAX_ID], ids=ascii)
def test_any_string_of_characters_is_an_id(session):
    assert check_id(session) == session


@pytest.mark.parametrize(
    "session", ["", "x" * (MAX_ID + 1), "\0", "a\0b", "\ud800", "a\udfff", None, 7, b"case-42", ["a"]]
)
def test_other_ids_are_refused_with_a_reason(session):
    with pytest.raises(InvalidArgument) as caught:
        check_id(session)
    assert caught.value.path == "session id"
    str(caught.value).encode()


def test_a_write_makes_the_head_that_it_says():
    write = a_write("case", 6, epoch=3, status="running", labels={"a": "b"}, owner="me", lease=30.0, data=b"[1]")
    assert write.head(now=100.0, created=50.0) == Head(
        session="case",
        seq=7,
        epoch=3,
        status="running",
        labels={"a": "b"},
        owner="me",
        expires=130.0,
        token=write.token,
        created=50.0,
        updated=100.0,
        now=100.0,
        data=b"[1]",
    )


def test_a_lease_without_an_owner_is_none():
    assert a_write(owner=None, lease=30.0).head(now=100.0, created=100.0).expires == 0.0


def test_a_head_has_labels_of_its_own():
    labels = {"a": "b"}
    head = a_write(labels=labels).head(now=1.0, created=1.0)
    labels["a"] = "changed"
    assert head.labels == {"a": "b"}


def test_a_deletion_leaves_the_id_and_the_times():
    head = a_write(seq=4, epoch=2, labels={"a": "b"}, owner="me", lease=9.0, data=b"[1]").head(now=100.0, created=50.0)
    left = head.deleted(now=200.0)
    assert (left.session, left.seq, left.epoch, left.status) == ("case-42", 6, 3, "deleted")
    assert (left.labels, left.owner, left.expires, left.token, left.data) == ({}, None, 0.0, "", b"")
    assert (left.created, left.updated, left.now) == (50.0, 200.0, 200.0)


def test_the_numbers_of_the_kinds_are_the_storage_format():
    assert FORMAT == 1
    expected = {"BODY": 1, "DECISION": 2, "TURN": 3, "CHECKPOINT": 4, "FAILURE": 5, "KEY": 6, "CALL": 7}
    assert {kind.name: kind.value for kind in Kind} == expected


@pytest.mark.parametrize(
    "record", [a_row(1), a_write(), a_write().head(now=1.0, created=1.0)], ids=lambda it: type(it).__name__
)
def test_records_do_not_change(record):
    for name in [field.name for field in dataclasses.fields(record)]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, None)
    with pytest.raises((AttributeError, TypeError)):
        record.new = 1


def test_records_are_made_by_name_only():
    for kind in (Row, Write, Head):
        with pytest.raises(TypeError):
            kind(1, 2, 3)


A_HEAD = {
    "session": "case",
    "seq": 1,
    "epoch": 1,
    "status": "idle",
    "labels": {"a": "b"},
    "owner": None,
    "expires": 0.0,
    "token": "t",
    "created": 1.0,
    "updated": 2.5,
    "now": 3,
    "data": b"{}",
}
NO_TIME = [None, "1", True, -1.0, 1e300, float("inf"), float("nan"), 2**63, [], b"1"]
NO_TEXT = [None, 7, b"x", [], {}]
NO_HEAD = {
    "session": NO_TEXT,
    "seq": [None, "1", True, -1, 1.0, 2**63, []],
    "epoch": [None, "1", True, -1, 1.0, 2**63, []],
    "status": [None, "", "odd", 7, [], {}],
    "labels": [None, [], "x", {"a": 1}, {"a": None}, {"a": {}}],
    "owner": [7, b"me", [], {}, True],
    "expires": NO_TIME,
    "token": NO_TEXT,
    "created": NO_TIME,
    "updated": NO_TIME,
    "now": NO_TIME,
    "data": [None, "{}", 7, []],
}


@pytest.mark.parametrize("kind", Kind)
def test_no_write_removes_decisions(kind):
    """They are the audit trail."""
    removes = [a_removal(9, kind=kind)]
    if kind is Kind.DECISION:
        with pytest.raises(InvalidArgument, match="removes: has decisions, which are never removed"):
            a_write(removes=removes)
    else:
        assert a_write(removes=removes).removes == tuple(removes)


def test_a_head_is_read_from_its_values():
    assert Head.stored(A_HEAD) == Head(**A_HEAD)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, wrong in NO_HEAD.items() for value in wrong])
def test_a_head_with_a_value_that_no_head_has_is_refused_by_its_name(name, value):
    with pytest.raises(StateInvalid, match=rf"damaged \({name}\)"):
        Head.stored(A_HEAD | {name: value})
