"""Draw docs/demo.svg from a real run of the demo."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from pathlib import Path

from rich.console import Console

from midturn.demo.walkthrough import run_demo

PICTURE = Path(__file__).parents[1] / "docs" / "demo.svg"


def main() -> int:
    """Run the demo and write the picture. Return 1 if the demo failed."""
    console = Console(record=True, width=96, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    code = asyncio.run(run_demo(console, as_json=False))
    svg = console.export_svg(title="midturn demo", unique_id="demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no fonts from the web
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
    print(f"{PICTURE.name}: drawn")
    return code


if __name__ == "__main__":
    sys.exit(main())
