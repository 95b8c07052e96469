"""Modules of other rooms that these tests share."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.with_name(name)) for name in ("hostile", "autogen"))]
