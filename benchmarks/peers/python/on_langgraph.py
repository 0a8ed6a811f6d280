"""The measured process of langgraph: a graph of one node (two with the tool), compiled for each agent or shared.

Without durability its quickest way is measured: no saver, the history handed in and taken out. `create_dispose`
compiles the graph, since that is what a new kind of agent costs.
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204, PTH118
# Runs in the peer's own environment; its packages are not installed beside ours.

from __future__ import annotations

import contextlib
import os

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool as make_tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from benchmarks.peers.python.cases import TEXT, main


async def answer(state):
    return {"messages": [AIMessage("ok")]}


count = 0


async def call_then_answer(state):
    global count  # noqa: PLW0603 - ids of calls must differ
    count += 1
    if isinstance(state["messages"][-1], HumanMessage):
        return {
            "messages": [AIMessage("", tool_calls=[{"name": "echo", "args": {"x": "1"}, "id": f"c{count}"}])]
        }
    return {"messages": [AIMessage("ok")]}


@make_tool
async def echo(x: str) -> str:
    """Give back what it got."""
    return x


def compiled(tool, saver=None):
    graph = StateGraph(MessagesState)
    graph.add_node("model", call_then_answer if tool else answer)
    graph.add_edge(START, "model")
    if tool:
        graph.add_node("tools", ToolNode([echo]))
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
    else:
        graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


class Conversation:
    def __init__(self, graph, thread):
        self.graph, self.thread, self.history = graph, thread, []

    async def turn(self):
        if self.thread:
            state = await self.graph.ainvoke(
                {"messages": [HumanMessage(TEXT)]}, {"configurable": {"thread_id": self.thread}}
            )
        else:
            state = await self.graph.ainvoke({"messages": [*self.history, HumanMessage(TEXT)]})
            self.history = state["messages"]
        assert state["messages"][-1].content == "ok"

    async def close(self):
        pass


class LangGraph:
    packages = ("langgraph", "langchain-core", "langgraph-checkpoint-sqlite")

    def __init__(self):
        self.saver = None
        self.kept = None
        self.count = 0

    async def make(self, *, tool=False, durable=False):
        self.count += 1
        if durable:
            return Conversation(self.kept, f"t{self.count}")
        return Conversation(compiled(tool), None)

    @contextlib.asynccontextmanager
    async def durably(self, directory):
        async with AsyncSqliteSaver.from_conn_string(os.path.join(directory, "threads.db")) as saver:
            self.kept = compiled(False, saver)
            yield


if __name__ == "__main__":
    main(LangGraph())
