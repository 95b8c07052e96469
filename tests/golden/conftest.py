"""The helpers beside the tests can be imported by name, and so can those of the tests of AutoGen."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "autogen")]
