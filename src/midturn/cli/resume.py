"""``midturn resume``: finish what was interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from midturn.cli.app_argument import is_live, load_app
from midturn.cli.conversation import Conversation
from midturn.cli.errors import AppInvalid
from midturn.cli.options import busy_option, common, label_option, timeout_option, traceback_option
from midturn.cli.session_argument import existing, find_session
from midturn.cli.signals import run

if TYPE_CHECKING:
    from midturn.turns.runner import Diverged
    from midturn.turns.session_options import Busy


@click.command()
@click.argument("app")
@click.argument("session", required=False)
@click.option("--all", "all_", is_flag=True, help="All sessions whose worker died in the middle of a turn.")
@click.option(
    "--continue",
    "continue_",
    is_flag=True,
    help="With SESSION: go on though the code has changed and what the turn has done does not fit it any more.",
)
@click.option("--failed", is_flag=True, help="With --all: also those whose last turn failed or was cancelled.")
@label_option("With --all: only sessions with this label; may be given several times.")
@click.option("--prefix", default="", help="With --all: only sessions whose id begins so.")
@timeout_option
@busy_option
@traceback_option
@common
def resume(
    *,
    app: str,
    session: str | None,
    all_: bool,
    continue_: bool,
    failed: bool,
    labels: dict[str, str],
    prefix: str,
    timeout: float,
    busy: Busy,
    url: str,
    as_json: bool,
    trace: bool,
) -> int:
    """Finish turns that were interrupted.

    With SESSION: its interrupted turn is finished; one that failed or was cancelled is tried again; for one that waits
    for an answer, its questions are shown.

    With --all: what crashed workers left behind is finished, one session after the other, at boot or from cron.
    Sessions that a living worker holds are left alone, and so are those of another Blueprint. Turns that wait for an
    answer are counted at the end. Ctrl-C ends it like a crash: what was not finished is there for the next time.
    """
    if (session is None) != all_:
        raise click.UsageError("give a SESSION or --all")
    if session is not None and (failed or labels or prefix):
        raise click.UsageError("--failed, --label and --prefix go with --all")
    if session is None and continue_:
        raise click.UsageError("--continue is decided for one SESSION")
    what = load_app(app)
    if session is not None:

        async def finish() -> None:
            async with existing(url) as store:
                await find_session(store, session)
                case = store.session(session, what, busy=busy, timeout=timeout)
                conversation = Conversation(store, case, app=app, url=url, as_json=as_json)
                diverged: Diverged = "continue" if continue_ else "raise"
                await conversation.finish(timeout if busy == "wait" else 0.0, diverged=diverged)

        run(finish())
        return 0
    if is_live(what):
        error = AppInvalid(f"{app} is one agent or team, and each session needs its own")
        error.add_note("name a function that builds it, or a Blueprint")
        raise error
    from midturn.cli.resume_all import ResumeAll

    work = ResumeAll(app, what, failed=failed, as_json=as_json, trace=trace)
    return run(work.finish(url, labels=labels, prefix=prefix))
