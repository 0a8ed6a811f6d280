"""A server of tools for the tests, which can misbehave. It speaks the protocol by hand, so it starts at once.

Arguments, any of them: `orphan` (ignore TERM and the end of the input, and leave a grandchild that does likewise), `mute`
(answer nothing), `fail` (say why and exit), `noisy` (write what is no message), `early` (tell a change before the first
list), `paged` (list the tools in pages), `odd` (a schema that no log takes as it is), `deep` (one that none takes at all), `picky` (exit unless the first thing heard is a greeting), `amid` (tell a change while the first list is asked for), `once=PATH` (exit at the second start), `moody=PATH`
(exit at the first thing heard, at the first two starts; later only if that is the older greeting).
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

MODES = set(sys.argv[1:])
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
writing = threading.Lock()
cancelled: list[Any] = []
hanging: dict[Any, threading.Event] = {}
extra = [arg.partition("=")[2] for arg in sys.argv[1:] if arg.startswith("tool=")]


def send(**message: Any) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def changed() -> None:
    send(method="notifications/tools/list_changed")


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def tools() -> list[dict[str, Any]]:
    plain: dict[str, Any] = {"type": "object"}
    if "odd" in MODES:
        plain = {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": -0.0, "maximum": 2**63 - 1}},
        }
    deep: dict[str, Any] = {}
    for _ in range(600):
        deep = {"not": deep}
    hints = {"look": {"readOnlyHint": True}, "set": {"idempotentHint": True}}
    names = [
        "echo", "look", "set", "env", "pid", "picture", "facts", "bad", "exit", "close", "deaf", "refuse", "nonsense",
        "silent", "steps", "wait", "cancelled", "change", "break", "mend", "large", "stop", "odd.name", "flood", "half", *extra,
    ]  # fmt: skip
    return [
        {
            "name": name,
            "description": f"The tool {name}.",
            "inputSchema": deep if "deep" in MODES and name == "echo" else plain,
            "annotations": hints.get(name, {}),
        }
        for name in names
    ]


def call(id: Any, name: str, given: dict[str, Any], token: Any) -> None:  # noqa: C901 - one case a tool
    """Run a tool in a thread of its own."""
    match name:
        case "echo" | "look" | "set" | "odd.name":
            send(id=id, result=text(given.get("text", "")))
        case "env":
            send(id=id, result=text(json.dumps(dict(os.environ))))
        case "pid":
            send(id=id, result=text(str(os.getpid())))
        case "picture":
            data = base64.b64encode(PIXEL).decode()
            content = [
                {"type": "image", "data": data, "mimeType": "image/png"},
                {"type": "image", "data": "PHN2Zz4=", "mimeType": "image/svg+xml"},
                {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
                {"type": "resource_link", "name": "r", "uri": "file:///r"},
                {"type": "resource", "resource": {"uri": "file:///t", "text": "inside"}},
            ]
            send(id=id, result={"content": content})
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "flood":
            with writing:
                sys.stdout.write("x" * given["size"] + "\n")
            send(id=id, result=text("dry"))
        case "half":
            send(id=id, result=text("a\ud800b"))
        case "facts":
            send(id=id, result={"content": [], "structuredContent": {"n": 1}})
        case "bad":
            send(id=id, result=text("it did not work", isError=True))
        case "exit":
            print(f"going down, key {os.environ.get('SECRET_KEY')}", file=sys.stderr, flush=True)
            if given.get("leave"):  # somebody who holds the pipes
                subprocess.Popen(["/bin/sh", "-c", "exec sleep 60"])
            os._exit(given.get("code", 3))
        case "close":
            os.close(1)
            time.sleep(60)
        case "deaf":
            os.close(0)
            time.sleep(60)
        case "refuse":
            send(id=id, error={"code": -32000, "message": f"no, not with {os.environ.get('SECRET_KEY')}"})
        case "nonsense":
            send(id=id, result={"content": 7})
        case "silent":
            while True:
                time.sleep(0.05)
                send(method="notifications/message", params={"level": "info", "data": "still here"})
                send(id=f"ping-{time.monotonic()}", method="ping")
        case "steps":
            for step in range(given["count"]):
                time.sleep(given["every"])
                params = {
                    "progressToken": token,
                    "progress": step + 1,
                    "total": given["count"],
                    "message": f"s{step}",
                }
                send(method="notifications/progress", params=params)
            send(id=id, result=text("all steps"))
        case "break":
            MODES.add("broken")
            changed()
            send(id=id, result=text("broken"))
        case "mend":
            MODES.discard("broken")
            extra[:] = ["mended"]
            changed()
            send(id=id, result=text("mended"))
        case "large":
            send(id=id, result={"content": [], "structuredContent": {"n": 2**63 - 1, "m": 1}})
        case "wait":
            hanging[id] = threading.Event()
            hanging[id].wait()
        case "cancelled":
            send(id=id, result=text(str(len(cancelled))))
        case "change":
            extra[:] = given["extra"]
            changed()
            send(id=id, result=text("changed"))
        case _:
            send(id=id, result=text(f"{name} at work"))


def answer(message: dict[str, Any]) -> None:
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    match method:
        case "server/discover" if "picky" in MODES:
            print("a greeting was expected", file=sys.stderr)
            sys.exit(6)
        case "initialize":
            send(
                id=id,
                result={
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "test", "version": "1"},
                    "instructions": "Use it well.",
                },
            )
            if "early" in MODES:
                extra[:] = ["early"]
                changed()
        case "tools/list" if "broken" in MODES:
            send(id=id, error={"code": -32603, "message": f"no list today {os.environ.get('SECRET_KEY')}"})
        case "tools/list" if "paged" in MODES:
            start = int(params.get("cursor", 0))
            more = {"nextCursor": str(start + 5)} if start + 5 < len(tools()) else {}
            send(id=id, result={"tools": tools()[start : start + 5], **more})
        case "tools/list":
            listed = tools()
            if "amid" in MODES:
                MODES.discard("amid")
                extra[:] = ["amid"]
                changed()
            send(id=id, result={"tools": listed})
        case "tools/call":
            token = (params.get("_meta") or {}).get("progressToken")
            given = params.get("arguments") or {}
            threading.Thread(target=call, args=(id, params["name"], given, token), daemon=True).start()
        case "notifications/cancelled":
            cancelled.append(params["requestId"])
            if params["requestId"] in hanging:
                hanging[params["requestId"]].set()
        case _ if id is not None and method is not None:
            send(id=id, error={"code": -32601, "message": "no such method"})


def main() -> None:
    if "fail" in MODES:
        print("there is no key", file=sys.stderr)
        sys.exit(4)
    if "orphan" in MODES:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; exec sleep 99"])
    if "noisy" in MODES:
        print("Welcome!\n\n{not json", flush=True)
    if "mute" in MODES:
        time.sleep(60)
    for arg in sys.argv[1:]:
        if arg.startswith("once="):
            with Path(arg.removeprefix("once=")).open("a+") as file:
                file.seek(0)
                if file.read():
                    sys.exit(5)
                file.write("x")
    moods = [Path(arg.partition("=")[2]) for arg in sys.argv[1:] if arg.startswith("moody=")]
    for line in sys.stdin:
        while moods:
            mood = moods.pop()
            starts = int(mood.read_text()) if mood.exists() else 0
            mood.write_text(str(starts + 1))
            if starts < 2 or json.loads(line)["method"] == "initialize":
                sys.exit(7)
        answer(json.loads(line))
    if "orphan" in MODES:
        time.sleep(99)


if __name__ == "__main__":
    main()
