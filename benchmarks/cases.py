"""What is measured, as data: which work, by whom, how much of it, and what we aim for."""

from __future__ import annotations

from typing import Any, Final, Literal

import attrs

Unit = Literal["us", "ms", "bytes", "count"]


@attrs.frozen(kw_only=True)
class Aim:
    """A figure to reach: an absolute bound, or a ratio within the same run.

    Attributes:
        at_most: bound in the metric's unit, or None.
        faster_than: a subject, and how many times its figure has to be ours; below one, we may be slower by that much.
        times: that many times; with `of`, at most that many times another of our own metrics.
        of: that metric.
    """

    at_most: float | None = None
    faster_than: str | None = None
    times: float | None = None
    of: str | None = None


@attrs.frozen(kw_only=True)
class Metric:
    """One figure of a case.

    Attributes:
        key: its name in what the processes report.
        title: what it says, for people.
        unit: us and ms are CPU time per operation.
        aims: figures to reach.
    """

    key: str
    title: str
    unit: Unit = "us"
    aims: tuple[Aim, ...] = ()


@attrs.frozen(kw_only=True)
class Case:
    """One piece of work, done by one or more subjects in processes of their own, round about.

    Attributes:
        name: its name, and the function in each process.
        group: the chapter of the report.
        title: the work, for people.
        about: what exactly is done, and what differs between the subjects.
        sizes: for each subject that can do it, its parameters.
        metrics: what comes out of it.
        rounds: how often; each round of each subject is one sample.
        fresh: whether each round has a new process, as memory needs.
        warm: whether a round goes before the first that counts.
        counted: parameters of the round that is counted and not timed, or None.
    """

    name: str
    group: str
    title: str
    about: str
    sizes: dict[str, dict[str, Any]]
    metrics: tuple[Metric, ...]
    rounds: int = 7
    fresh: bool = False
    warm: bool = True
    counted: dict[str, Any] | None = None


OURS: Final = "trio_agents"
PY: Final = ("pydantic-ai", "openai-agents", "langgraph")


def faster(times: float, than: str = "harness") -> Aim:
    """So many times faster than a peer, in the same run."""
    return Aim(faster_than=than, times=times)


WINDOWS: Final = {"100": "early", "400": "turns_301_400", "1000": "late", "10000": "very_late"}
LOGS: Final = {"root": "{logs}", "sizes": [1_000, 10_000, 100_000]}

CASES: Final[tuple[Case, ...]] = (
    Case(
        name="create_dispose",
        group="Lifecycle",
        title="Create and dispose one agent, in memory",
        about=(
            "Sequential, no setup. Ours publishes to registries, tells listeners and runs the ordered teardown, as the "
            "harness does. For the Python peers it is only the object (langgraph: compiling its graph); they have "
            "nothing to dispose."
        ),
        sizes={
            OURS: {"agents": 1500},
            "floor": {"agents": 3000},
            "harness": {"agents": 400},
            "pydantic-ai": {"agents": 300},
            "openai-agents": {"agents": 300},
            "langgraph": {"agents": 200},
        },
        metrics=(Metric(key="create_dispose", title="create + dispose", aims=(faster(15), Aim(at_most=65))),),
        counted={"agents": 100},
    ),
    Case(
        name="create_dispose_files",
        group="Lifecycle",
        title="The same with a store on disk",
        about="Takes the id for all processes (a directory and its lock) and gives it back; nothing was logged.",
        sizes={OURS: {"agents": 400}},
        metrics=(Metric(key="create_dispose", title="create + dispose"),),
        counted={"agents": 50},
    ),
    Case(
        name="create_context_dispose",
        group="Lifecycle",
        title="The same with one async context entered in setup",
        about=(
            "A context has a task of its own, so that it is entered and left in one place. The floor is one task with a "
            "nursery, which enters the context and leaves it."
        ),
        sizes={OURS: {"agents": 300}, "floor": {"agents": 600}},
        metrics=(
            Metric(
                key="create_context_dispose", title="create + enter + dispose", aims=(faster(0.5, "floor"),)
            ),
        ),
        counted={"agents": 50},
    ),
    Case(
        name="create_turn_dispose",
        group="Lifecycle",
        title="Create, one turn, dispose, in memory",
        about="The first turn logs 12 events: the 10 of any turn, the request's header and its context.",
        sizes={
            OURS: {"agents": 300},
            "floor": {"agents": 600},
            "harness": {"agents": 150},
            "pydantic-ai": {"agents": 40},
            "openai-agents": {"agents": 60},
            "langgraph": {"agents": 80},
        },
        metrics=(Metric(key="create_turn_dispose", title="create + turn + dispose", aims=(faster(8),)),),
        counted={"agents": 50},
    ),
    Case(
        name="close_idle",
        group="Lifecycle",
        title="Close an owner of many idle agents",
        about="Per agent. One scope owns them all and is closed; linear if the three figures agree.",
        sizes={
            OURS: {"sizes": [1_000, 10_000, 100_000]},
            "harness": {"sizes": [1_000]},
        },
        metrics=(
            Metric(key="close_1000", title="close, 1,000 owned", aims=(Aim(at_most=10),)),
            Metric(key="close_10000", title="close, 10,000 owned", aims=(Aim(at_most=10),)),
            Metric(
                key="close_100000",
                title="close, 100,000 owned",
                aims=(Aim(at_most=10), Aim(of="close_1000", times=1.5)),
            ),
            Metric(key="create_1000", title="create, up to 1,000 live"),
            Metric(key="create_100000", title="create, up to 100,000 live"),
        ),
        rounds=3,
        warm=False,
        counted={"sizes": [500]},
    ),
    Case(
        name="cancel_to_quiet",
        group="Lifecycle",
        title="Cancel agents whose models are streaming, until they are quiet",
        about=(
            "Per agent, 1,000 at once: cancel recorded, stream ended, closers logged, idle. The floor only cancels a "
            "task and logs two events."
        ),
        sizes={OURS: {"agents": 1000, "single": 200}, "floor": {"agents": 1000, "single": 0}},
        metrics=(
            Metric(key="cancel_to_quiet", title="cancel to quiet", aims=(Aim(at_most=100),)),
            Metric(key="dispose_to_quiet", title="dispose to quiet"),
        ),
        counted={"agents": 100, "single": 0},
    ),
    Case(
        name="growth",
        group="Turns",
        title="A turn, as the history grows",
        about=(
            "One agent, in memory; each request carries the whole history. A turn logs 10 events (ours, harness, "
            "floor). The Python peers do not stream and log nothing; slow ones stop early."
        ),
        sizes={
            OURS: {"turns": 10_000, "windows": WINDOWS},
            "floor": {"turns": 10_000, "windows": WINDOWS},
            "harness": {"turns": 1_000, "windows": WINDOWS},
            "pydantic-ai": {"turns": 200, "windows": WINDOWS},
            "openai-agents": {"turns": 400, "windows": WINDOWS},
            "langgraph": {"turns": 1_000, "windows": WINDOWS},
        },
        metrics=(
            Metric(key="early", title="turns 1–100", aims=(faster(6),)),
            Metric(key="turns_301_400", title="turns 301–400"),
            Metric(key="late", title="turns 901–1,000", aims=(faster(25),)),
            Metric(key="very_late", title="turns 9,901–10,000", aims=(Aim(of="early", times=1.1),)),
        ),
        rounds=5,
        warm=False,
    ),
    Case(
        name="turns",
        group="Turns",
        title="A turn of one agent, for its counts",
        about="Wake, one request, one answer of two chunks, idle again.",
        sizes={OURS: {"turns": 400}},
        metrics=(Metric(key="turn", title="turn"),),
        counted={"turns": 100},
    ),
    Case(
        name="crowd",
        group="Turns",
        title="100 agents, 20 turns each, all at once, in memory",
        about="Per turn.",
        sizes={
            OURS: {"agents": 100, "turns": 20},
            "floor": {"agents": 100, "turns": 20},
            "harness": {"agents": 100, "turns": 20},
            "pydantic-ai": {"agents": 100, "turns": 3},
            "openai-agents": {"agents": 100, "turns": 4},
            "langgraph": {"agents": 100, "turns": 10},
        },
        metrics=(Metric(key="turn", title="turn, 100 agents", aims=(faster(6),)),),
        rounds=5,
        counted={"agents": 20, "turns": 5},
    ),
    Case(
        name="tools",
        group="Turns",
        title="A turn with a tool call: call, tool, answer; 100 agents at once",
        about="One async tool with one text argument, validated; two requests.",
        sizes={
            OURS: {"agents": 100, "turns": 10},
            "harness": {"agents": 100, "turns": 10},
            "pydantic-ai": {"agents": 100, "turns": 2},
            "openai-agents": {"agents": 100, "turns": 3},
            "langgraph": {"agents": 100, "turns": 3},
        },
        metrics=(Metric(key="tool_turn", title="tool turn", aims=(faster(6),)),),
        rounds=5,
        counted={"agents": 20, "turns": 5},
    ),
    Case(
        name="chunks",
        group="Turns",
        title="A long answer, per chunk",
        about="400 pieces of text at once, each logged, assembled and shown to observers.",
        sizes={OURS: {"turns": 10, "pieces": 400}},
        metrics=(Metric(key="chunk", title="chunk"),),
        counted={"turns": 2, "pieces": 200},
    ),
    Case(
        name="stream",
        group="Durability",
        title="A long answer on a disk, per chunk",
        about="The same, written. Like chunks that come within a tenth of a second share a row and a write.",
        sizes={OURS: {"turns": 10, "pieces": 400}},
        metrics=(Metric(key="chunk", title="chunk"),),
        rounds=5,
        counted={"turns": 2, "pieces": 200},
    ),
    Case(
        name="wire",
        group="Turns",
        title="A long answer over HTTP, per chunk",
        about=(
            "400 events of a chat completion out of httpx2's mock transport. By hand: lines, typed JSON, the text, and "
            "nothing else. Then the adapter alone, which keeps deadlines and assembles blocks; then an agent with it, "
            "which logs each chunk, in memory and on a disk."
        ),
        sizes={OURS: {"turns": 10, "pieces": 400}},
        metrics=(
            Metric(key="bare", title="by hand"),
            Metric(key="adapter", title="the adapter"),
            Metric(key="memory", title="an agent, in memory", aims=(Aim(times=4, of="bare"),)),
            Metric(key="written", title="an agent, written", aims=(Aim(times=4, of="bare"),)),
        ),
        counted={"turns": 2, "pieces": 200},
    ),
    Case(
        name="latency",
        group="Turns",
        title="How long `ask` takes, and how it is spread",
        about="Wall time, one agent, in memory, the collector running. On a busy machine the tail is the machine's.",
        sizes={OURS: {"asks": 500}},
        metrics=(Metric(key="ask", title="ask"),),
        rounds=5,
        counted={"asks": 50},
    ),
    Case(
        name="inbox",
        group="Turns",
        title="Append a message to the inbox and remove it, with others pending",
        about="Two durable facts, in memory. Peers in Python have no inbox.",
        sizes={
            OURS: {"pairs": 1500, "depths": [0, 10, 100, 1000]},
            "harness": {"pairs": 300, "depths": [0, 10, 100, 1000]},
        },
        metrics=(
            Metric(key="depth_0", title="0 pending", aims=(faster(3),)),
            Metric(key="depth_10", title="10 pending", aims=(faster(3),)),
            Metric(key="depth_100", title="100 pending", aims=(faster(3),)),
            Metric(key="depth_1000", title="1,000 pending", aims=(faster(3),)),
        ),
        rounds=5,
        counted={"pairs": 50, "depths": [0]},
    ),
    Case(
        name="append",
        group="Durability",
        title="Append one small event",
        about="Per event, without waiting for a disk. On files it is one write.",
        sizes={
            OURS: {"events": 4000, "tiers": ["memory", "written", "synced"]},
            "floor": {"events": 8000, "tiers": ["memory", "written"]},
            "harness": {"events": 4000, "tiers": ["memory"]},
        },
        metrics=(
            Metric(key="memory", title="in memory"),
            Metric(key="written", title="written"),
            Metric(key="synced", title="synced store"),
        ),
        rounds=5,
        counted={"events": 200, "tiers": ["memory", "written", "synced"]},
    ),
    Case(
        name="durable",
        group="Durability",
        title="A durable turn, one agent",
        about=(
            "The same turns in memory, written to a file before each append returns, and synced at each barrier (before "
            "the request and at the turn's end: two syncs; harness one, openai-agents two, langgraph five)."
        ),
        sizes={
            OURS: {"turns": 150},
            "floor": {"turns": 150},
            "harness": {"turns": 60},
            "pydantic-ai": {"turns": 30},
            "openai-agents": {"turns": 40},
            "langgraph": {"turns": 40},
        },
        metrics=(
            Metric(key="memory", title="in memory"),
            Metric(key="written", title="written"),
            Metric(key="synced", title="synced"),
            Metric(key="written_extra", title="written: added to each event", aims=(Aim(at_most=4),)),
        ),
        counted={"turns": 50},
    ),
    Case(
        name="durable_crowd",
        group="Durability",
        title="Durable turns, 50 agents at once",
        about="5 turns each. pydantic-ai: the application's own file, synced each turn; openai-agents and langgraph: SQLite.",
        sizes={
            OURS: {"agents": 50, "turns": 5},
            "floor": {"agents": 50, "turns": 5},
            "harness": {"agents": 50, "turns": 5},
            "pydantic-ai": {"agents": 50, "turns": 2},
            "openai-agents": {"agents": 50, "turns": 2},
            "langgraph": {"agents": 50, "turns": 2},
        },
        metrics=(
            Metric(key="written", title="written"),
            Metric(key="synced", title="synced", aims=(faster(8),)),
        ),
        rounds=5,
        counted={"agents": 20, "turns": 5},
    ),
    Case(
        name="durable_create",
        group="Durability",
        title="Create, one durable turn, dispose",
        about="Synced store: a new directory, lock and log for each.",
        sizes={OURS: {"agents": 60}, "harness": {"agents": 20}},
        metrics=(Metric(key="create_turn_dispose", title="create + turn + dispose"),),
        rounds=5,
        counted={"agents": 20},
    ),
    Case(
        name="resume",
        group="Durability",
        title="Resume a stored session",
        about=(
            "The whole call: lock, read, check, rebuild. Ours and the harness read the very same files (plain JSONL, ten "
            "events a turn); the floor only decodes the lines into typed values. The longest stall is the wall time for "
            "which the loop did not come round to its other tasks meanwhile."
        ),
        sizes={OURS: LOGS, "floor": LOGS, "harness": LOGS},
        metrics=(
            Metric(key="resume_1000", title="1,000 events", unit="ms"),
            Metric(key="resume_10000", title="10,000 events", unit="ms"),
            Metric(
                key="resume_100000",
                title="100,000 events",
                unit="ms",
                aims=(faster(3), Aim(at_most=200), faster(0.4, "floor")),
            ),
            Metric(key="stall_100000", title="longest stall, 100,000", unit="ms"),
        ),
        rounds=3,
        warm=False,
    ),
    Case(
        name="stall",
        group="Durability",
        title="How long the loop stands still while a sync takes half a second",
        about=(
            "4 agents, durable turns. Wall time between two looks of the scheduler at what else is ready, so the work "
            "of agents that are ready together is in it, and whatever else the machine does; the same on an ordinary "
            "disk stands beside it."
        ),
        sizes={OURS: {"agents": 4, "turns": 2}},
        metrics=(
            Metric(key="longest", title="longest stall, slow disk", unit="ms", aims=(Aim(at_most=5),)),
            Metric(key="ordinary", title="longest stall, this disk", unit="ms"),
        ),
        rounds=3,
        warm=False,
    ),
    Case(
        name="memory_idle",
        group="Memory",
        title="A live idle agent",
        about=(
            "Heap as tracemalloc and V8 count it; resident memory of a fresh process. Blocks and tracked objects are what "
            "the allocator and the collector hold. For the Python peers only the object."
        ),
        sizes={
            OURS: {"agents": 3000},
            "harness": {"agents": 1000},
            "pydantic-ai": {"agents": 500},
            "openai-agents": {"agents": 500},
            "langgraph": {"agents": 200},
        },
        metrics=(
            Metric(key="heap_bytes", title="heap", unit="bytes", aims=(Aim(at_most=1536),)),
            Metric(key="resident_bytes", title="resident", unit="bytes"),
            Metric(key="blocks", title="memory blocks", unit="count"),
            Metric(key="tracked", title="collected objects", unit="count"),
            Metric(key="tasks", title="tasks", unit="count", aims=(Aim(at_most=0),)),
        ),
        rounds=3,
        fresh=True,
        warm=False,
    ),
    Case(
        name="memory_running",
        group="Memory",
        title="An agent in the middle of its first answer",
        about="Its turn's task, its log of 9 events and its scopes included.",
        sizes={OURS: {"agents": 1000}},
        metrics=(
            Metric(key="resident_bytes", title="resident", unit="bytes"),
            Metric(key="blocks", title="memory blocks", unit="count"),
            Metric(key="tasks", title="tasks", unit="count"),
        ),
        rounds=3,
        fresh=True,
        warm=False,
    ),
    Case(
        name="primitives",
        group="Floor",
        title="What Trio and the system charge",
        about="The price list under everything above.",
        sizes={"floor": {"ops": 2000}},
        metrics=(
            Metric(key="checkpoint", title="checkpoint"),
            Metric(key="cancel_scope", title="cancel scope"),
            Metric(key="task", title="task started and run"),
            Metric(key="nursery", title="nursery opened and left"),
            Metric(key="thread_hop", title="hop to a thread and back"),
            Metric(key="encode", title="a small event encoded"),
            Metric(key="write", title="a line written"),
            Metric(key="write_and_sync", title="lines written and synced"),
        ),
        rounds=5,
    ),
)
"""Every case, in the order of the report."""
