"""The phases of an agent as one table: what each input does in each phase.

```
            publish             wake                     a turn failed             quiet            settled
  HELD ───────────────► IDLE ─────────────► RUNNING ──────────────► ENDING ──────────────► SETTLING ────► IDLE
                         │ ▲                   └───────────── quiet ──────────────────────────►┘
                maintain │ │ maintained
                         ▼ │
                      MAINTENANCE
```

`latch` means: the wake is remembered, and answered when the agent becomes idle. A wake in RUNNING joins the turn at
work, unless that turn's activity is already cancelled: then it is latched, too.
"""

from __future__ import annotations

import enum
from typing import Final, Literal


class Phase(enum.Enum):
    """What an agent is doing."""

    __hash__ = object.__hash__  # members are single objects; the hash of Enum is that of their name, and slow

    HELD = "being set up"
    IDLE = "idle"
    RUNNING = "running"
    ENDING = "ending its run"
    SETTLING = "becoming idle"
    MAINTENANCE = "in maintenance"


class Input(enum.Enum):
    """What can happen to it."""

    __hash__ = object.__hash__

    PUBLISH = "publish"
    WAKE = "wake"
    TURN_FAILED = "a turn failed"
    QUIET = "nothing left to do"
    SETTLED = "everybody was told"
    MAINTAIN = "maintenance"
    MAINTAINED = "maintenance over"


Wake = Literal["start", "join", "latch"]

WAKES: Final[dict[Phase, Wake]] = {
    Phase.HELD: "latch",
    Phase.IDLE: "start",
    Phase.RUNNING: "join",
    Phase.ENDING: "latch",
    Phase.SETTLING: "latch",
    Phase.MAINTENANCE: "latch",
}
"""What a wake does in each phase."""

TRANSITIONS: Final[dict[Phase, dict[Input, Phase]]] = {
    Phase.HELD: {Input.PUBLISH: Phase.IDLE},
    Phase.IDLE: {Input.WAKE: Phase.RUNNING, Input.MAINTAIN: Phase.MAINTENANCE},
    Phase.RUNNING: {Input.TURN_FAILED: Phase.ENDING, Input.QUIET: Phase.SETTLING},
    Phase.ENDING: {Input.QUIET: Phase.SETTLING},
    Phase.SETTLING: {Input.SETTLED: Phase.IDLE},
    Phase.MAINTENANCE: {Input.MAINTAINED: Phase.IDLE},
}
"""Which phase follows; what is not here cannot happen."""

BUSY: Final = frozenset({Phase.RUNNING, Phase.ENDING})
"""The phases in which an agent's status is `running`."""


def step(phase: Phase, happened: Input) -> Phase:
    """The phase that follows.

    Raises:
        KeyError: that cannot happen in this phase.
    """
    return TRANSITIONS[phase][happened]
