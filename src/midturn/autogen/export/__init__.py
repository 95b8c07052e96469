"""Turn a captured state into conversations that other libraries continue."""

from midturn.autogen.export.documents import export

__all__ = ["export"]
