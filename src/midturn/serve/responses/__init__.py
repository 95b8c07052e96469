"""OpenAI's Responses API: a conversation is a session, a model is a blueprint, a response is a turn.

A turn that waits for an approval is a response with ``mcp_approval_request`` items. The answers continue the turn, in
another response, whose items are those after the request. A response id has the session, the turn, and the number of
items of the turn that come before.
"""

from __future__ import annotations

from midturn.serve.responses.routes import router as router
