"""The page on which people see sessions and decide: HTML made on the server, which works without JavaScript."""

from __future__ import annotations

from midturn.serve.web.pages import router as router
