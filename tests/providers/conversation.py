"""A conversation with the real local model: an answer, one that is cancelled, and one as a value.

`python -m tests.providers.conversation STORE` has it once more, where the packages of `make test-providers` are; what
`trio-agents sessions export local-model --store STORE` prints then is the recording in `tests/corpus/logs`.
"""

from __future__ import annotations

import sys

import attrs
import trio

import trio_agents as ta

SESSION = "local-model"
OPTIONS = ta.AgentOptions(model="local/smollm2", max_tokens=16, temperature=0.0)
HEARD = 4
"""Pieces of the second answer that are waited for before it is cancelled."""


@attrs.frozen
class City:
    city: str


async def converse(store: ta.SessionStore, model: ta.models.LocalModel) -> City | None:
    async with (
        ta.open_runtime(store=store, models=[model]) as runtime,
        runtime.open_agent(SESSION, options=OPTIONS) as agent,
    ):
        await agent.ask("What is the capital of France? One sentence.")
        heard = 0
        async with agent.stream("Tell me a story.") as reply:
            async for _ in reply:
                heard += 1
                if heard == HEARD:
                    break  # leaving the block cancels the turn
        typed = await agent.ask("Name the capital of France.", returns=City)
        return typed.value


if __name__ == "__main__":
    print(trio.run(converse, ta.JsonlStore(sys.argv[1]), ta.models.LocalModel()))
