"""The way of one turn stays short. Counts do not depend on the machine, so a test can hold them."""

from benchmarks.call_counts import answer_counts, call_counts


async def test_a_turn_and_an_answer_stay_within_their_budgets():
    turn, answer, resume, first, one, history = await call_counts()
    assert turn.calls <= 900
    assert turn.changes <= 350
    assert (turn.body_reads, turn.writes) == (0, 3)
    assert answer.calls <= 2_600
    assert (answer.body_reads, answer.writes) == (1, 4)
    assert (resume.body_reads, first.body_reads) == (1, 1)
    assert (one.writes, history.writes) == (0, 0)


async def test_the_hundredth_answer_of_a_turn_costs_what_the_first_does():
    first, half, half_replayed, last, last_replayed = await answer_counts((1, 50, 100))
    assert half.calls <= 1.1 * first.calls
    assert last.calls <= 1.1 * first.calls
    assert last.body_reads == half.body_reads == 0
    assert last_replayed.calls <= 2.1 * half_replayed.calls  # linear


async def test_sealing_needs_no_read_of_bodies_and_no_write_of_its_own():
    plain, sealed = await call_counts(), await call_counts(sealed=True)
    assert [(each.body_reads, each.writes) for each in sealed] == [(each.body_reads, each.writes) for each in plain]
