"""An inbox for people who decide: every case that waits, the conversation so far, the question, and its answer.

MIDTURN_URL=sqlite:///cases.db uvicorn app:app
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import escape
from typing import Annotated, Any
from urllib.parse import urlencode

from autogen_agentchat.agents import AssistantAgent
from fastapi import FastAPI, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel

import midturn
from midturn.testing import ScriptedModel, ToolCall


@midturn.tool(approval=True)
async def pay(iban: str, amount: float) -> str:
    """Pay an amount in EUR."""
    return f"paid {amount} to {iban}"


def build() -> AssistantAgent:
    # A scripted model, which needs no key; put your own here.
    script = {"paid": "It is paid.", "not allowed": "Then not.", "": ToolCall("pay", {"iban": "NL12", "amount": 40.0})}
    return AssistantAgent("clerk", ScriptedModel(script), tools=[pay], reflect_on_tool_use=True)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, Any]]:
    async with midturn.open() as store:
        yield {"store": store}


app = FastAPI(lifespan=lifespan)
STYLE = "<style>body { font: 16px sans-serif; max-width: 45em; margin: 2em auto } pre { white-space: pre-wrap }</style>"


@app.get("/")
async def inbox(request: Request) -> HTMLResponse:
    waiting = request.state.store.sessions(status="waiting", order="updated")
    links = [f'<li><a href="/cases/{escape(info.id)}">{escape(info.id)}</a>' async for info in waiting]
    return HTMLResponse(f"{STYLE}<h1>Cases that wait</h1><ul>{''.join(links)}</ul>")


@app.get("/cases/{case_id}")
async def show(case_id: str, request: Request, problem: str = "") -> HTMLResponse:
    """Show the conversation, also that of the turn that waits, and a form for each question."""
    case = request.state.store.session(case_id, build)
    info = await request.state.store.info(case_id)
    said: list[str] = []
    async for turn in case.history(last=10):
        said += [line(message.source, message.to_text()) for message in turn.messages]
    turn = await case.open_turn()
    if turn is not None:  # what it has said so far is made again from its record, without any call
        said += [line(message.source, message.to_text()) for message in turn.messages]
    forms = [form(case_id, question) for question in turn.questions] if turn is not None else []
    refresh = '<meta http-equiv="refresh" content="1">' if info.status == "running" else ""
    heading = f"<h1>{escape(case_id)}: {info.status}</h1><p>{escape(problem)}</p>"
    return HTMLResponse(f"{refresh}{STYLE}{heading}{''.join(said)}{''.join(forms)}")


def line(source: str, text: str) -> str:
    return f"<p><b>{escape(source)}</b>: {escape(text)}</p>"


def form(case_id: str, question: midturn.Question) -> str:
    """Return the form of a question: the whole of it, and what can be answered."""
    arguments = escape(json.dumps(question.arguments, indent=2))  # ASCII, so that nothing in it is invisible
    field = {
        "human": '<input name="words" size="50"> <button name="answer" value="said">say</button>',
        "approval": f"""<p><textarea name="arguments" rows="5" cols="60">{arguments}</textarea></p>
            <button name="answer" value="approve">approve</button>
            <button name="answer" value="deny">deny</button>, because: <input name="words" size="40">""",
        "doubt": """<button name="answer" value="retry">it did not happen: try again</button>
            <button name="answer" value="fail">treat it as failed</button>
            <button name="answer" value="done">it is done</button>, with this result: <input name="words" size="40">""",
    }[question.kind]
    return f"""<form method="post" action="/cases/{escape(case_id)}/answers"><h2>{escape(question.question)}</h2>
        <input type="hidden" name="question" value="{escape(question.id)}">{field}
        <p>I am <input name="by" required></p></form>"""


class Answer(BaseModel):
    """The fields of a form."""

    question: str
    by: str
    answer: str
    words: str = ""
    arguments: str = ""

    @property
    def text(self) -> str:
        """Return the answer in midturn's words."""
        if self.answer == "said":
            return self.words
        return f"{self.answer}: {self.words}" if self.words and self.answer in ("deny", "done") else self.answer


@app.post("/cases/{case_id}/answers")
async def answer(case_id: str, request: Request, given: Annotated[Answer, Form()]) -> RedirectResponse:
    """Record the answer, and continue the case in the background."""
    case = request.state.store.session(case_id, build)
    problem = ""
    try:
        changed = json.loads(given.arguments) if given.arguments and given.answer == "approve" else None
        await case.start_answer(given.text, question=given.question, arguments=changed, by=given.by)
    except (midturn.Conflict, ValueError) as error:  # somebody was faster, or this is no answer to the question
        problem = "?" + urlencode({"problem": str(error)})
    return RedirectResponse(f"/cases/{case_id}{problem}", status_code=303)
