"""The program of the process that llama.cpp runs in: its server, for as long as the parent holds our stdin open.

It is run by its path and imports nothing of this package: it is to be up soon. The first line of stdin is the settings,
the only line of stdout is the address or the error, both as JSON. Everything else that is printed goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Serve until stdin ends."""
    # llama.cpp prints as it likes; the answer to the parent keeps a descriptor of its own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.buffer.readline())
    try:
        import xllamacpp

        # As long as this name lives, so does the server.
        server = xllamacpp.Server(_parameters(xllamacpp.CommonParams(), settings))
    except Exception as exc:  # noqa: BLE001 - told to the parent, which raises it
        print(json.dumps({"error": str(exc) or type(exc).__name__}), file=answers, flush=True)
        return
    print(json.dumps({"address": server.listening_address}), file=answers, flush=True)
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)  # nobody is left to answer to; taking the server down would only take time


def _parameters(params: Any, settings: dict[str, Any]) -> Any:
    params.model.path = settings["path"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.n_ctx = settings["context"] * settings["parallel"]  # all slots share it in equal parts
    params.n_parallel = settings["parallel"]
    for use in (params.cpuparams, params.cpuparams_batch):
        use.n_threads = settings["threads"]
        use.poll = 0  # waiting threads sleep: the cores are not llama.cpp's alone
    params.cache_ram_mib = settings["cache_mib"]
    params.verbosity = settings["verbosity"]
    params.offline = True
    params.ui = False
    params.endpoint_slots = False
    return params


if __name__ == "__main__":
    main()
