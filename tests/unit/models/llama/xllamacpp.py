"""A double of the package `xllamacpp`: as much of it as `_llama_server.py` uses, and an HTTP server that is no model.

What the model's file says decides how it loads; what the last message says decides how it answers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class CommonParams(types.SimpleNamespace):
    def __init__(self) -> None:
        super().__init__(
            model=types.SimpleNamespace(path=""),
            cpuparams=types.SimpleNamespace(n_threads=-1, poll=50),
            cpuparams_batch=types.SimpleNamespace(n_threads=-1, poll=50),
        )


class Server:
    def __init__(self, params: CommonParams) -> None:
        print("noise on stdout", flush=True)
        text = Path(params.model.path).read_text()
        if "broken" in text:
            print("0.00.024.229 E llama_model_load: the file is cut off", file=sys.stderr)
            print("0.00.036.838 E cmn  common_init_: failed to load model", file=sys.stderr, flush=True)
            raise RuntimeError("Failed to init server")
        if "silent" in text:
            raise RuntimeError("Failed to init server")
        if "deadly" in text:
            os.kill(os.getpid(), signal.SIGABRT)
        if "gated" in text:
            Path(params.model.path + ".gate").read_bytes()  # a pipe: whoever writes to it lets us go on
        if "elsewhere" in text:
            self.listening_address = text.split()[-1]  # somebody else answers, and does not ask for the key
            return
        Handler.params = params
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{server.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    params: CommonParams
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {self.params.api_keys[0]}":
            self.send_error(401)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        word = str(body["messages"][-1]["content"]).split()[0]
        self.say(delta={"content": "one "})
        if word == "stall":
            self.rfile.read(1)  # until the client is gone
            return
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "facts":
            facts = {"body": body, "params": vars(self.params), "sid": os.getsid(0)}
            self.say(delta={"content": json.dumps(facts, default=vars)})
        else:
            self.say(delta={"content": "two"})
        self.say(delta={}, finish_reason="stop")
        self.wfile.write(b"data: [DONE]\n\n")

    def say(self, **choice: Any) -> None:
        event = {"choices": [{"index": 0, **choice}]}
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, file=sys.stderr, flush=True)
