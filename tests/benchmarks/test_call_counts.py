"""The way of one turn stays short. Counts do not depend on the machine, so a test can hold them."""

from benchmarks.call_counts import call_counts


async def test_a_turn_and_an_answer_stay_within_their_budgets():
    turn, answer, resume, first, one = await call_counts()
    assert turn.calls <= 900
    assert turn.changes <= 350
    assert (turn.body_reads, turn.writes) == (0, 3)
    assert answer.calls <= 2_600
    assert (answer.body_reads, answer.writes) == (1, 4)
    assert (resume.body_reads, first.body_reads) == (1, 1)
    assert one.writes == 0
