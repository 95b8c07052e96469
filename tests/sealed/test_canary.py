"""F22: what people say is in no file of a sealed store, in no log and in no error, and keys are nowhere at all."""

import base64
import io
import logging
import secrets
import sqlite3
import traceback
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.models import FunctionExecutionResultMessage
from scripted import Scripted, calls
from tools.servers import Postgres, Redis
from tools.servers.shared import EMBEDDED

import midturn
from midturn.stores.sealed.keys import KEY_BYTES, new_key
from midturn.stores.wrapper import innermost

LINE = new_key("2026-11")
KEY = base64.b64decode(LINE.partition(":")[2])
KEYS = midturn.Keys.parse(LINE)

pytestmark = [pytest.mark.fault("F22"), pytest.mark.timeout(300)]


PLACES = (
    *("task", "answer", "argument", "result", "memory", "prompt", "error of a model", "error of a tool", "correction"),
    *("key", "key of a discarded turn", "changed argument", "answer of a human", "by", "why", "why of a deletion"),
)


class Canaries:
    """A random word for each place where people's words go."""

    def __init__(self):
        self.words = {place: f"kanari{secrets.token_hex(8)}" for place in PLACES}

    def __call__(self, place):
        return self.words[place]

    def found_in(self, data):
        """Return the places whose word is in some bytes, also as hexadecimal digits or base64."""
        return {place for place, word in self.words.items() if any(form in data for form in _forms(word.encode()))}


def _forms(word):
    yield word
    yield word.hex().encode()
    yield word.hex().upper().encode()
    for offset in range(3):
        yield base64.b64encode(bytes(offset) + word)[4:-4]


def build(canary):
    def answer(messages):
        asked = next(each.content for each in reversed(messages) if type(each).__name__ == "UserMessage")
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return f"Noted: {canary('answer')}"
        if "break" in asked:
            raise ConnectionError(f"no answer to {canary('error of a model')}")
        tool, order = "refund" if "refund" in asked else "look", canary("argument") + ("!" if "raise" in asked else "")
        return calls((tool, f'{{"order": "{order}"}}'))

    async def look(order: str) -> str:
        """Look at an order."""
        if order.endswith("!"):
            raise ValueError(canary("error of a tool"))
        return f"late, {canary('result')}"

    async def refund(order: str) -> str:
        """Refund an order."""
        return f"refunded {order}"

    memory = ListMemory(memory_contents=[MemoryContent(content=canary("memory"), mime_type=MemoryMimeType.TEXT)])
    return AssistantAgent(
        "clerk",
        Scripted(answer),
        tools=[midturn.tool(effect="read")(look), midturn.tool(approval=True)(refund)],
        memory=[memory],
        system_message=f"You are a clerk. {canary('prompt')}",
        reflect_on_tool_use=True,
    )


def panel():
    return RoundRobinGroupChat(
        [UserProxyAgent("user", input_func=midturn.human)], termination_condition=MaxMessageTermination(2)
    )


async def live(store, canary):
    """Do in a store what people do, with a word of its own in each place."""
    case = store.session("case-42", lambda: build(canary))
    await case.run(task=f"look at it, {canary('task')}", key=f"mail {canary('key')}")
    with pytest.raises(midturn.TurnFailed):
        await case.run(task="break it")
    await case.discard(by=canary("by"))
    await case.run(task="raise it")
    for task, key in (("refund it", f"mail {canary('key of a discarded turn')}"), ("refund it again", None)):
        assert (await case.run(task=task, key=key)).waiting
        if key:
            await case.discard()
    await case.answer("approve", arguments={"order": canary("changed argument")}, by="ann")
    await case.rewind(1, why=canary("why"))
    await case.edit(lambda state: state.correct(canary("task"), canary("correction")))
    await case.fork("case-43")
    asks = store.session("panel", panel)
    assert (await asks.run(task="ask her")).waiting
    await asks.answer(canary("answer of a human"))
    await store.save("by hand", build(canary))
    await store.delete("case-43", by="ann", why=canary("why of a deletion"))
    await case.compact(before=3)


@contextmanager
def place(kind, tmp_path):
    """A store of this kind: its URL, and the directory with every file of it and of its server."""
    if kind in EMBEDDED:
        yield f"{kind}:///{tmp_path}/cases", tmp_path
        return
    if kind == "postgres":
        spoken = {"log_statement": "all", "log_parameter_max_length": "-1", "log_min_messages": "debug1"}
        with Postgres(spoken) as server:
            yield server.url, server.folder
        return
    with Redis() as server:
        yield server.url, server.folder
        server.execute("SAVE")


def files(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file()]


@pytest.fixture
def logged():
    """All that is logged at every level, but by AutoGen, which logs messages itself."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.addFilter(lambda record: not record.name.startswith("autogen"))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.removeHandler(handler)
    root.setLevel(before)


@pytest.mark.parametrize("kind", ["sqlite", "file", "postgres", "redis"])
async def test_no_file_of_a_sealed_store_has_a_word_and_those_of_a_plain_one_have_each(
    kind, tmp_path, logged, record_property
):
    counts = {}
    for keys in (None, KEYS):
        canary = Canaries()
        (tmp_path / str(keys)).mkdir()
        with place(kind, tmp_path / str(keys)) as (url, folder):
            async with midturn.open(url, keys=keys, compress="none") as store:
                await live(store, canary)
                found = {word for path in files(folder) for word in canary.found_in(path.read_bytes())}
            if kind == "redis":
                store_of = Path(folder)
        if kind == "redis":
            found |= {word for path in files(store_of) for word in canary.found_in(path.read_bytes())}
        assert found == (set() if keys else set(canary.words))
        assert not canary.found_in(logged.getvalue().encode())
        counts[bool(keys)] = f"{len(found)} of {len(canary.words)} words in {len(files(folder))} files"
    record_property("figures", f"{kind}: plain {counts[False]}, sealed {counts[True]}")


def all_of(error, *, with_locals=False):
    """Return all that can be seen of an error and of those that led to it; of its locals, those in midturn's frames."""
    seen, rest, text = [], [error], []
    while rest:
        one = rest.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        rest += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
        text += [*traceback.format_exception(one), str(one), repr(one), repr(one.args), repr(vars(one))]
        if with_locals:
            trace = one.__traceback__
            while trace is not None and "src/midturn" not in trace.tb_frame.f_code.co_filename:
                trace = trace.tb_next
            text += traceback.TracebackException(type(one), one, trace, capture_locals=True).format()
    return "\n".join(text)


async def test_errors_of_a_sealed_store_show_no_word_and_no_key(tmp_path, logged):
    canary, url = Canaries(), f"sqlite:///{tmp_path}/x.db"
    other = midturn.Keys.parse(new_key("2027-05"))
    async with midturn.open(url, keys=KEYS) as store:
        await live(store, canary)
        inner = innermost(store.store)
        heads = await inner.heads()
        rows = [await inner.rows(head.session, kind) for head in heads for kind in range(1, 8)]
    shown = [repr(KEYS), repr(heads), repr(rows)]
    for keys, spoils in ((other, False), (KEYS, True), (False, False)):
        if spoils:
            _spoil(tmp_path / "x.db")
        async with midturn.open(url, keys=keys) as store:
            shown.append(repr(store) + repr(store.store))
            shown += [repr([info async for info in store.sessions()])]
            for session in ("case-42", "panel", "by hand"):
                case = store.session(session, lambda: build(canary))
                for attempt in (case.run(task="again"), store.load(session, build(canary)), case.at(3).state()):
                    with pytest.raises(midturn.MidturnError) as caught:
                        await attempt
                    assert isinstance(caught.value, midturn.Tampered | midturn.WrongKey | midturn.NotFound)
                    shown.append(all_of(caught.value))
    assert "was changed" in "".join(shown)
    text = ("\n".join(shown) + logged.getvalue()).encode()
    assert canary.found_in(text) == set()
    assert not _keys_in(text, KEY)


def _spoil(path):
    """Flip a bit in each row, as somebody with the file could."""
    with closing(sqlite3.connect(path)) as database:
        database.create_function("flipped", 1, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
        for table in ("rows", "turn_calls"):
            database.execute(f"UPDATE {table} SET data = flipped(data)")
        database.commit()


def _keys_in(text, key):
    """Return the forms of a key that are in a text."""
    forms = [*_forms(key), repr(key).encode()[2:-1], str(list(key)).encode()]
    return [form for form in forms if form in text]


GOOD = new_key("good")
MISTAKES = {
    "no base64": f"{GOOD},2026:%%",
    "no colon": f"{GOOD},2026",
    "a wrong id": f"{GOOD},-:{GOOD[5:]}",
    "the same id": f"{GOOD},{GOOD}",
    "too short": f"{GOOD},2026:YWJj",
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("way", ["text", "variable", "file", "mapping"])
async def test_a_mistake_in_keys_shows_none_of_them_not_even_in_the_locals_of_frames(
    way, mistake, tmp_path, monkeypatch
):
    text = MISTAKES[mistake]
    file = tmp_path / "keys.txt"
    file.write_text(text.replace(",", "\n"))
    file.chmod(0o600)
    ways = {
        "text": lambda: midturn.Keys.parse(text),
        "variable": lambda: (monkeypatch.setenv("MIDTURN_KEYS", text), midturn.open("memory://")),
        "file": lambda: (monkeypatch.setenv("MIDTURN_KEYS_FILE", str(file)), midturn.open("memory://")),
        "mapping": lambda: midturn.Keys({"good": base64.b64decode(GOOD[5:]), "2026": b"short"}),
    }
    with pytest.raises(midturn.InvalidArgument) as caught:
        ways[way]()
    shown = all_of(caught.value, with_locals=True)
    assert GOOD[5:] not in shown
    assert not _keys_in(shown.encode(), base64.b64decode(GOOD[5:]))


class Failing:
    """A key service that wraps and unwraps, until it fails."""

    fails = False

    def __init__(self):
        self.data_keys = []

    async def wrap(self, data_key, context):
        if self.fails:
            raise ConnectionError("out of reach")
        self.data_keys.append(data_key)
        return await KEYS.wrap(data_key, context)

    async def unwrap(self, key_id, wrapped, context):
        if self.fails:
            raise ConnectionError("out of reach")
        self.data_keys.append(await KEYS.unwrap(key_id, wrapped, context))
        return self.data_keys[-1]


async def test_the_data_key_of_a_session_is_in_no_local_of_a_failing_call(tmp_path):
    canary, url, service = Canaries(), f"sqlite:///{tmp_path}/x.db", Failing()
    async with midturn.open(url, keys=service) as store:
        await store.session("case-42", lambda: build(canary)).run(task="look at it")
    _spoil(tmp_path / "x.db")
    async with midturn.open(url, keys=service) as store:
        for fails in (False, True):
            service.fails = fails
            for attempt in (store.load("case-42", build(canary)), store.session("new", lambda: build(canary)).run("a")):
                try:
                    await attempt
                except midturn.MidturnError as error:
                    shown = all_of(error, with_locals=True).encode()
                    assert not [key for key in service.data_keys if _keys_in(shown, key)]
    assert len({*service.data_keys}) >= 2
    assert all(len(key) == KEY_BYTES for key in service.data_keys)
