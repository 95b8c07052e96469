"""The helpers beside the tests can be imported by name, here as in the processes that the tests start."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
