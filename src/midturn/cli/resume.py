"""``midturn resume``: finish interrupted turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from midturn.cli.app_argument import as_blueprint, load_app
from midturn.cli.conversation import Conversation
from midturn.cli.options import busy_option, by_option, common, label_option, timeout_option, traceback_option
from midturn.cli.session_argument import existing, find_session
from midturn.cli.signals import run

if TYPE_CHECKING:
    from midturn.turns.runner import Diverged
    from midturn.turns.session_options import Busy


@click.command()
@click.argument("app")
@click.argument("session", required=False)
@click.option("--all", "all_", is_flag=True, help="Finish the turns of all sessions whose worker died.")
@click.option(
    "--continue",
    "continue_",
    is_flag=True,
    help="With SESSION: continue although the code has changed and no longer fits the recorded calls.",
)
@click.option("--failed", is_flag=True, help="With --all: also try failed and cancelled turns again.")
@label_option("With --all: only sessions with this label; repeatable.")
@click.option("--prefix", default="", help="With --all: only sessions whose id begins with this.")
@by_option
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
    by: str | None,
    timeout: float,
    busy: Busy,
    url: str,
    as_json: bool,
    trace: bool,
) -> int:
    """Finish interrupted turns.

    With SESSION: finish its interrupted turn, or try its failed or cancelled turn again. If the turn waits for an
    answer, show its questions. A session that began without a Blueprint belongs to the Blueprint APP from then on.

    With --all: finish the turns of crashed workers, one session after the other. Run it at boot or from cron. APP must
    be a Blueprint, because its name tells which sessions belong to it. The command skips sessions of another Blueprint,
    sessions that began without one, and sessions that a living worker holds. At the end it counts the turns that wait
    for an answer. Ctrl-C ends it like a crash: the next run finishes the rest.
    """
    if (session is None) != all_:
        raise click.UsageError("give either a SESSION or --all")
    if session is not None and (failed or labels or prefix):
        raise click.UsageError("--failed, --label and --prefix need --all")
    if session is None and continue_:
        raise click.UsageError("--continue needs a SESSION")
    what = load_app(app)
    if session is not None:

        async def finish() -> None:
            async with existing(url) as store:
                await find_session(store, session)
                case = store.session(session, what, busy=busy, timeout=timeout)
                conversation = Conversation(store, case, app=app, url=url, as_json=as_json, by=by)
                diverged: Diverged = "continue" if continue_ else "raise"
                await conversation.finish(timeout if busy == "wait" else 0.0, diverged=diverged)

        run(finish())
        return 0
    why = f"--all finishes the sessions of one Blueprint, and {app} is not a Blueprint with a name"
    blueprint = as_blueprint(what, why)
    from midturn.cli.resume_all import ResumeAll

    work = ResumeAll(app, blueprint, url, failed=failed, as_json=as_json, trace=trace)
    return run(work.finish(labels=labels, prefix=prefix))
