"""The zstd of Python: ``compression.zstd`` since 3.14, and the same as a package for older versions."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
