"""Memories, tools and workbenches with a state, and agents that have them."""

from autogen_core.memory import ListMemory, Memory, MemoryContent, MemoryQueryResult, UpdateContextResult
from autogen_core.models import UserMessage
from autogen_core.tools import BaseTool, BaseToolWithState, FunctionTool, TextResultContent, ToolResult, Workbench
from gaps import handles, on_request
from kinds import assistant
from pydantic import BaseModel


def content(text):
    return MemoryContent(content=text, mime_type="text/plain")


def noting(name="noting", notes=None):
    """Notes in its memory what it is told to, and forgets it all when it is told to."""
    notes = ListMemory() if notes is None else notes

    async def note(what: str) -> str:
        """Note something."""
        await notes.add(content(what))
        return "noted"

    async def forget(what: str) -> str:
        """Forget all notes."""
        await notes.clear()
        return "forgotten"

    found = assistant(name, on_request("note", "forget"), tools=[note, forget], memory=[notes])
    handles[found] = notes
    return found


class Sketchbook(Memory):
    """A memory of one's own: shows only the last entry, and says how many there were."""

    def __init__(self):
        self.entries = []

    async def update_context(self, model_context):
        if not self.entries:
            return UpdateContextResult(memories=MemoryQueryResult(results=[]))
        text = f"{len(self.entries)} entries, the last one: {self.entries[-1]}"
        await model_context.add_message(UserMessage(content=text, source="sketchbook"))
        return UpdateContextResult(memories=MemoryQueryResult(results=[content(text)]))

    async def query(self, query, cancellation_token=None, **options):
        return MemoryQueryResult(results=[content(entry) for entry in self.entries])

    async def add(self, content, cancellation_token=None):
        self.entries.append(content.content)

    async def clear(self):
        self.entries.clear()

    async def close(self):
        pass


class KeptSketchbook(Sketchbook):
    async def save_state(self):
        return {"entries": self.entries}

    async def load_state(self, state):
        self.entries = list(state["entries"])


class Item(BaseModel):
    what: str


class Items(BaseModel):
    items: list[str] = []


class TypedCart(BaseToolWithState[Item, str, Items]):
    """A tool with AutoGen's own way to have a state."""

    def __init__(self):
        super().__init__(Item, str, Items, "add", "Add to the cart.")
        self.cart = Items()

    async def run(self, args, cancellation_token):
        self.cart.items.append(args.what)
        return f"{len(self.cart.items)} in the cart: {self.cart.items}"

    def save_state(self):
        return self.cart.model_copy(deep=True)

    def load_state(self, state):
        self.cart = state


class Untold(BaseTool[Item, str]):
    """A tool that changes and says nothing about it."""

    def __init__(self):
        super().__init__(Item, str, "add", "Add to the cart.")
        self.items = []

    async def run(self, args, cancellation_token):
        self.items.append(args.what)
        return f"{len(self.items)} in the cart: {self.items}"


class JsonCart(Untold):
    """A tool with AutoGen's two JSON methods."""

    async def save_state_json(self):
        return {"items": list(self.items)}

    async def load_state_json(self, state):
        self.items = list(state["items"])


class MethodsCart(Untold):
    """A tool with midturn's two methods."""

    async def save_state(self):
        return {"items": list(self.items)}

    async def load_state(self, state):
        self.items = list(state["items"])


class UntoldCart:
    """No tool itself: its bound methods are."""

    def __init__(self):
        self.items = []

    async def add(self, what: str) -> str:
        """Add to the cart."""
        self.items.append(what)
        return f"{len(self.items)} in the cart: {self.items}"

    def drop(self, what: str) -> str:
        """Take out of the cart."""
        self.items.remove(what)
        return f"{len(self.items)} in the cart: {self.items}"


class Cart(UntoldCart):
    async def save_state(self):
        return {"items": list(self.items)}

    async def load_state(self, state):
        self.items = list(state["items"])


class Shop(Workbench):
    """A workbench of one's own: sells from a stock."""

    def __init__(self, name="add"):
        self.name = name
        self.sold = []

    async def list_tools(self):
        return [FunctionTool(self.sell, "Sell one.", name=self.name).schema]

    async def sell(self, what: str) -> str:
        self.sold.append(what)
        return f"sold {len(self.sold)}: {self.sold}"

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        return ToolResult(name=name, result=[TextResultContent(content=await self.sell(arguments["what"]))])

    async def start(self):
        pass

    async def stop(self):
        pass

    async def reset(self):
        self.sold.clear()

    async def save_state(self):
        return {"sold": list(self.sold)}

    async def load_state(self, state):
        self.sold = list(state["sold"])


def with_tools(name="buyer", **options):
    return assistant(name, on_request("add", "drop", "helper", "group"), description="Buys.", **options)
