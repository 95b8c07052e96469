"""F16: code and prompts change while a turn is open; what was done is never done again."""

import pytest
from desk import A1, B2, Desk, killed, results

import midturn
from midturn.errors import ReplayDiverged

C3 = ("refund", {"order": "C3"})


async def interrupted(store, desk):
    """A turn whose first refund is done and recorded, and whose second question to the model fails."""
    desk.model_error_at = 2
    with pytest.raises(midturn.TurnFailed):
        await store.session("case", desk).run(task="please")


def changed(desk, *script, prompt="Be brief."):
    """The desk after a deployment: other words for the model, and perhaps other calls from it."""
    other = Desk(*(script or desk.script), prompt=prompt)
    other.done, other.keys = desk.done, desk.keys
    return other


async def test_a_changed_prompt_asks_the_model_again_and_repeats_nothing_that_was_done(memory):
    desk = Desk([A1], [B2])
    await interrupted(memory, desk)
    other = changed(desk)
    result = await memory.session("case", other).resume()
    assert other.done == [("refund", "A1"), ("refund", "B2")]
    assert results(result) == ["refund of A1 is done", "refund of B2 is done"]
    assert other.asked.total() == 3
    (turn,) = [turn async for turn in memory.session("case").history()]
    assert turn.notes == ["model_client: the model was asked again, because its request had changed"]


async def test_without_a_change_there_are_no_notes_and_the_model_is_not_asked_again(memory):
    desk = Desk([A1], [B2])
    await interrupted(memory, desk)
    await memory.session("case", desk).resume()
    (turn,) = [turn async for turn in memory.session("case").history()]
    assert turn.notes == ()
    assert sorted(desk.asked.values()) == [1, 1, 2], "only the question that failed is asked twice"


@pytest.mark.parametrize("how", ["done", "in doubt"])
async def test_a_call_that_was_rejected_once_is_rejected_again_and_is_not_in_doubt(memory, how):
    """The first attempt has recorded the model's answer that asks for the call."""
    desk = Desk([A1], [B2])
    if how == "done":
        await interrupted(memory, desk)
    else:
        desk.fail = "refund"
        await killed(memory, desk)
    other = changed(desk, [C3])
    for _ in range(3):
        with pytest.raises(ReplayDiverged, match="C3"):
            await memory.session("case", other).resume()
    assert other.done == [("refund", "A1")]
    assert await memory.session("case").waiting() is None


async def test_another_call_in_the_place_of_one_that_was_done_is_refused_with_both_sides(memory):
    desk = Desk([A1], [B2])
    await interrupted(memory, desk)
    other = changed(desk, [C3])
    with pytest.raises(ReplayDiverged) as caught:
        await memory.session("case", other).resume()
    assert caught.value.recorded == ('refund({"order":"A1"})',)
    assert caught.value.now == 'refund({"order":"C3"})'
    for way in ('resume(diverged="continue")', "discard()", "fork("):
        assert way in str(caught.value)
    assert other.done == [("refund", "A1")]
    assert [turn.status async for turn in memory.session("case").history()] == ["failed"]


async def test_a_turn_that_ends_without_what_was_done_is_refused(memory):
    desk = Desk([A1], [B2])
    await interrupted(memory, desk)
    with pytest.raises(ReplayDiverged, match="ends without them") as caught:
        await memory.session("case", changed(desk, [("look", {"order": "A1"})])).resume()
    assert caught.value.now is None


async def test_one_can_go_on_all_the_same_and_the_history_says_so(memory):
    desk = Desk([A1], [B2])
    await interrupted(memory, desk)
    other = changed(desk, [C3])
    result = await memory.session("case", other).resume(diverged="continue")
    assert results(result) == ["refund of C3 is done"]
    assert other.done == [("refund", "A1"), ("refund", "C3")]
    (turn,) = [turn async for turn in memory.session("case").history()]
    assert any('refund({"order":"A1"}) was done' in note for note in turn.notes)


async def test_one_can_give_the_turn_up(memory):
    desk = Desk([A1], [B2])
    await interrupted(memory, desk)
    case = memory.session("case", changed(desk, [C3]))
    with pytest.raises(ReplayDiverged):
        await case.resume()
    assert await case.discard()
    assert await case.resume() is None


async def test_one_can_go_on_from_before_the_turn_in_another_session(memory):
    desk = Desk()
    await memory.session("case", desk).run(task="remember me")
    desk.script = [[A1], [B2]]
    desk.asked.clear()
    await interrupted(memory, desk)
    desk.script = []
    other = await memory.session("case", desk).fork("case-b", at=1)
    result = await other.run(task="who am I?")
    assert result.turn == 2
    assert "remember me" in str(desk.model.seen[-1])
    assert [turn.status async for turn in memory.session("case").history()] == ["done", "failed"]
    with pytest.raises(midturn.Conflict, match="case-b"):
        await memory.session("case", desk).fork("case-b", at=1)


async def test_what_was_read_may_be_left_out_or_read_again(memory):
    look = [("look", {"order": "A1"})]
    reads = {"look": midturn.tool(effect="read")}
    desk = Desk(look, [B2], effects=reads)
    await interrupted(memory, desk)
    other = changed(desk, [("look", {"order": "Z9"})])
    other.effects = reads
    await memory.session("case", other).resume()
    assert other.done == [("look", "A1"), ("look", "Z9")]


async def test_a_turn_can_be_interrupted_again_after_a_change(memory):
    desk = Desk([A1], [B2], [C3])
    await interrupted(memory, desk)
    for attempt in range(3):
        desk = changed(desk, prompt=f"version {attempt}")
        desk.model_error_at = 3 + attempt
        if attempt < 2:
            with pytest.raises(midturn.TurnFailed):
                await memory.session("case", desk).resume()
        else:
            desk.model_error_at = 0
            await memory.session("case", desk).resume()
    assert desk.done == [("refund", "A1"), ("refund", "B2"), ("refund", "C3")]
