"""What can be asked on the command line, and what every command has in common: its errors."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from ..errors import TrioAgentsError, UsageError
from ..values import describe

FAILED: Final = 1
MISUSED: Final = 2

CHECKOUT: Final = Path(__file__).parents[2]
"""Where the package lies: the root of a checkout, or some folder of installed packages."""

TOOL_NAMES: Final = ("read", "list", "grep", "write", "edit", "run", "fetch")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code; what goes wrong is one line on stderr, never a traceback.

    Args:
        argv: the arguments, without the program's name; by default those of the process.
    """
    try:
        options = _parser().parse_args(argv)
    except SystemExit as exc:  # help, the version, or a usage error that argparse has told
        return exc.code if isinstance(exc.code, int) else MISUSED
    with _own_log(verbose=options.verbose):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        command = importlib.import_module(f"._{options.module}", __package__)
        code: int = command.main(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has had enough. Nothing must try to write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except UsageError as exc:
        return _complain(exc, MISUSED, verbose=options.verbose)
    except (TrioAgentsError, OSError) as exc:
        return _complain(exc, FAILED, verbose=options.verbose)
    except Exception as exc:  # noqa: BLE001 - a user gets a line, whatever happens
        return _complain(exc, FAILED, verbose=options.verbose, is_bug=True)
    return code


def _complain(exc: BaseException, code: int, *, verbose: bool, is_bug: bool = False) -> int:
    if verbose:
        logging.getLogger("trio_agents").error("the command failed", exc_info=exc)
    text = _plain(exc)
    if is_bug:
        text = f"this should not have happened: {text} (-v shows where)"
    complain(text)
    return code


def _plain(exc: BaseException) -> str:
    """What an error of ours says is written for people; what others say needs their name with it."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    if isinstance(exc, TrioAgentsError):
        return str(exc)
    return describe(exc) if isinstance(exc, Exception) else type(exc).__name__


def complain(text: str) -> None:
    """Say what went wrong, as one line."""
    print(f"trio-agents: {' '.join(text.split())}", file=sys.stderr)


@contextlib.contextmanager
def _own_log(*, verbose: bool) -> Iterator[None]:
    """Have the library's own log on stderr: a line for each record, tracebacks only if they are asked for."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine(verbose=verbose))
    logger = logging.getLogger("trio_agents")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class _OneLine(logging.Formatter):
    def __init__(self, *, verbose: bool) -> None:
        super().__init__()
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        if self._verbose:
            return super().format(record)
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]}"
        return f"trio-agents: {' '.join(text.split())}"


# --- the arguments --------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """A usage error is one line, too."""
        print(f"{self.prog}: {message} (--help shows what is possible)", file=sys.stderr)
        raise SystemExit(MISUSED)


def _parser() -> argparse.ArgumentParser:
    common = _Parser(add_help=False)
    common.add_argument(
        "-v", "--verbose", action="store_true", help="tell on stderr what happens inside, with tracebacks"
    )
    parser = _Parser(
        prog="trio-agents",
        description="Durable language-model agents: run them, look into them, replay them.",
    )
    parser.add_argument("--version", action="version", version=f"trio-agents {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_run(commands, common)
    _add_sessions(commands, common)
    _add_replay(commands, common)
    _add_demo(commands, common)
    _add_bench(commands)
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trio-agents")
    except PackageNotFoundError:
        return "(not installed)"


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="DIR",
        help="where sessions are kept (default: $TRIO_AGENTS_STORE, else the data folder)",
    )


def _add_run(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "run",
        parents=[common],
        help="give an agent a message and show what it does",
        description="Give an agent a message, show its answer as it comes, and keep everything in a log. The answer "
        "goes to stdout, everything else to stderr. Ctrl-C stops the turn and keeps what was said.",
    )
    parser.set_defaults(module="run")
    parser.add_argument(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        help="the message; - reads it from stdin; none with --resume goes on with an unfinished turn",
    )
    parser.add_argument(
        "--model",
        metavar="PROVIDER/MODEL",
        help="such as openai/gpt-5, anthropic/claude-sonnet-4-5 or local/smollm2 (default: on a resume, the one "
        "that answered last; else $TRIO_AGENTS_MODEL; else $OPENAI_MODEL, if OpenAI is set up; else demo/demo)",
    )
    parser.add_argument("--session", metavar="ID", help="the session's id (default: a new one)")
    parser.add_argument(
        "--resume", action="store_true", help="go on with a stored session; without --session, the last one"
    )
    _add_store(parser)
    parser.add_argument(
        "--tools",
        metavar="LIST",
        help=f"which tools the agent has, of {','.join(TOOL_NAMES)}; none for no tools (default: read,list,grep)",
    )
    parser.add_argument("--system", metavar="TEXT", help="the system prompt")
    parser.add_argument("--cwd", metavar="DIR", help="the folder that the tools work in (default: this one)")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="the output cap of a request")
    parser.add_argument("--effort", metavar="LEVEL", help="the reasoning effort, in the provider's words")
    parser.add_argument(
        "--retries",
        type=int,
        default=3,
        metavar="N",
        help="how often a failed request is sent again (default: 3)",
    )
    parser.add_argument("--json", action="store_true", help="write what happens as JSON lines")


def _add_sessions(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "sessions", help="list, show, verify, repair, fork, export or delete sessions"
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action", parser_class=_Parser)
    about = {
        "list": "list the stored sessions",
        "show": "show what is in a session",
        "verify": "read a whole log and say what is wrong with it",
        "repair": "write a new log from the good beginning of a damaged one",
        "fork": "copy a session, or its beginning, as a new one",
        "export": "write a log to stdout as plain lines, whatever it is stored as",
        "delete": "delete a session and its attachments",
    }
    for action, text in about.items():
        sub = actions.add_parser(
            action, parents=[common], help=text, description=text[0].upper() + text[1:] + "."
        )
        sub.set_defaults(module="sessions")
        if action == "show":
            sub.add_argument("session", metavar="ID_OR_FILE", help="a session's id, or a log file anywhere")
        elif action != "list":
            sub.add_argument("session", metavar="ID", help="the session's id")
        if action == "fork":
            sub.add_argument(
                "--at", type=int, metavar="N", help="the last event to copy (default: the last there is)"
            )
            sub.add_argument("--id", metavar="ID", help="the copy's id (default: a new one)")
        if action == "list":
            sub.add_argument("--limit", type=int, metavar="N", help="show at most so many")
        _add_store(sub)
        if action != "export":
            sub.add_argument("--json", action="store_true", help="write JSON")


def _add_replay(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "replay",
        parents=[common],
        help="check that a recorded session comes out the same with this version",
        description="Drive a recorded session through the whole runtime again: its messages are delivered, its model "
        "answers and its tools return what they did. The new log is compared with the recorded one, event by event; "
        "the first difference is shown with its place in both. Exit code 1 if there is one, or if the recording is "
        "broken; 0 also if it holds no turn.",
    )
    parser.set_defaults(module="replay_command")
    parser.add_argument("log", metavar="LOG", help="a log file, or the id of a stored session")
    _add_store(parser)
    parser.add_argument("--json", action="store_true", help="write JSON")


def _add_demo(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "demo",
        parents=[common],
        help="a few seconds that show what this is about, without a network",
        description="Replay a recorded session, then run an agent with real tools, kill its process in the middle of "
        "a tool, resume it, and count what is left. Needs no network and leaves nothing behind.",
    )
    parser.set_defaults(module="demo")
    parser.add_argument("--cwd", metavar="DIR", help="the folder that the agent looks at (default: this one)")


def _add_bench(commands: Any) -> None:
    # No argument of it is an option to this parser: the benchmarks are a program with options of its own.
    parser = commands.add_parser(
        "bench", add_help=False, prefix_chars="\0", help="run the benchmarks of a checkout (bench --help)"
    )
    parser.set_defaults(module="bench", verbose=False)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
