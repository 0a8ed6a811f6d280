"""A tool: a function that a model may call, with everything that a model and a runtime must know of it."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, cast, final, get_args, overload

import attrs
import trio

from ..errors import ToolError, UsageError
from ..session._events import ToolCall, ToolSpec
from ..values._json import FrozenJson, JsonValue
from ._arguments import parse_object, structure
from ._context import ServiceBody, ToolContext
from ._docstrings import parse_docstring
from ._results import DEFAULT_OUTPUT_LIMIT, ToolReturn, encode_result
from ._signature import Signature, is_method, read_signature
from ._structuring import converter_of_tools

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

Effect: TypeAlias = Literal["pure", "idempotent", "once"]
"""What running a call twice does: nothing at all, the same as once, or something twice."""

Arguments: TypeAlias = Mapping[str, object]
"""The arguments of a call as values of the types that the tool asks for, by parameter."""

Parallel: TypeAlias = bool | Callable[[Arguments], bool]
Reconcile: TypeAlias = Callable[[ToolCall], object]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@final
@attrs.frozen(eq=False, kw_only=True)
class Tool(Generic[P, R_co]):
    """What `tool` makes of a function. Immutable; calling it calls the function.

    Taken from an instance, a tool that was made of a method is bound to it.

    Attributes:
        name: the name that models call it by.
        description: what models read of it.
        parameters: the JSON schema of its arguments.
        effect: what running a call twice does.
        timeout: seconds that a call may take, or None.
        output_limit: how many characters of text a result may have, or None.
        abandon_on_cancel: whether a cancel leaves the thread of a plain function to itself.
    """

    name: str
    description: str
    parameters: FrozenJson
    effect: Effect = "once"
    timeout: float | None = None
    output_limit: int | None = DEFAULT_OUTPUT_LIMIT
    abandon_on_cancel: bool = False
    _fn: Callable[P, R_co] = attrs.field(repr=False, alias="fn")
    # None for a tool that takes any object, as it is, and the context.
    _signature: Signature | None = attrs.field(default=None, repr=False, alias="signature")
    _parallel: Parallel = attrs.field(default=False, repr=False, alias="parallel")
    _reconcile: Reconcile | None = attrs.field(default=None, repr=False, alias="reconcile")
    _bound: bool = attrs.field(default=False, repr=False, alias="bound")

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    @property
    def is_service(self) -> bool:
        """Whether a call starts a task that outlives it, because the function takes a `TaskStatus`."""
        return self._signature is not None and self._signature.status is not None

    @property
    def is_threaded(self) -> bool:
        """Whether the function is a plain one, and so runs in a thread."""
        return not _is_async(self._fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself, as if it were no tool."""
        return self._fn(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R_co]:
        """The tool bound to an instance, if it was made of a method."""
        if instance is None or self._bound or self._signature is None or not self._signature.receiver:
            return self
        method = cast("Callable[..., R_co]", types.MethodType(self._fn, instance))
        return attrs.evolve(cast("Tool[..., R_co]", self), fn=method, bound=True)

    def parse(self, raw: str) -> Arguments:
        """The text that a model wrote as arguments; empty text is no arguments. No checkpoint.

        Raises:
            ToolArgumentsError: it is no JSON object, or does not fit; every fault is named.
        """
        return self.structure(parse_object(self.name, raw))

    def structure(self, given: Mapping[str, object]) -> Arguments:
        """JSON values as arguments. No checkpoint.

        Raises:
            ToolArgumentsError: they do not fit; every fault is named.
        """
        if self._signature is None:
            return dict(given)
        return structure(self.name, self._signature.fields, given)

    def is_parallel(self, arguments: Arguments) -> bool:
        """Whether this call may run beside others: only if the tool says exactly True. Never raises."""
        answer: object = self._parallel
        if callable(answer):
            try:
                answer = answer(arguments)
            except Exception:  # noqa: BLE001 - whatever goes wrong, alone is always right
                return False
        return answer is True

    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolReturn:
        """Run the function once and encode what it returns. A checkpoint.

        Args:
            arguments: what `parse` or `structure` gave.
            context: the call; its `spill` and `attach` take what a result cannot hold.

        Raises:
            ToolError: TOOL_TIMEOUT, when the tool's own time is up.
            UsageError: the tool is a method and was not taken from an instance.
            BaseException: what the function raised, as it is; `error_result` makes a result of it.
        """
        if self._signature is not None and self._signature.receiver and not self._bound:
            raise UsageError(f"tool {self.name!r} is a method: take it from an instance, not from the class")
        if self.timeout is None:
            value = await self._run(arguments, context)
        else:
            with trio.move_on_after(self.timeout) as scope:
                value = await self._run(arguments, context)
            if scope.cancelled_caught:
                raise ToolError(too_late(self, self.timeout), code="TOOL_TIMEOUT")
        return encode_result(value, self.output_limit, spill=context.spill, attach=context.attach)

    async def reconcile(self, call: ToolCall) -> ToolReturn | None:
        """Find out what became of a call whose process died, without running it again.

        Returns:
            The real result, or None if it cannot be known (or the tool has no way to tell).
        """
        if self._reconcile is None:
            await trio.lowlevel.checkpoint()
            return None
        value = self._reconcile(call)
        if inspect.isawaitable(value):
            value = await value
        else:
            await trio.lowlevel.checkpoint()
        return None if value is None else encode_result(value, self.output_limit)

    async def _run(self, arguments: Arguments, context: ToolContext) -> object:
        call = self._prepared(arguments, context)
        if self.is_service:
            return await context.start_service(cast("ServiceBody", call))
        if _is_async(self._fn):
            return await cast("Callable[[], Awaitable[object]]", call)()
        # In a tuple, since Trio will not have a coroutine out of a thread, which a wrapper may well return.
        (value,) = await trio.to_thread.run_sync(lambda: (call(),), abandon_on_cancel=self.abandon_on_cancel)
        return await value if inspect.isawaitable(value) else value

    def _prepared(self, arguments: Arguments, context: ToolContext) -> Callable[..., object]:
        """The function with everything that it takes, but a service's `task_status`."""
        fn = cast("Callable[..., Awaitable[object]]", self._fn)
        signature = self._signature
        if signature is None:
            return functools.partial(fn, arguments, context)
        keywords = {name: value for name, value in arguments.items() if name not in signature.positional}
        if signature.context is not None:
            keywords[signature.context] = context
        positional = _positional(signature, arguments)
        if signature.status is None:
            return functools.partial(fn, *positional, **keywords)
        name = signature.status

        async def service(*, task_status: trio.TaskStatus[object]) -> object:
            return await fn(*positional, **keywords, **{name: task_status})

        return service


def too_late(tool: Tool[..., object], seconds: float) -> str:
    """What is said of a call that was cut short because its time was up."""
    abandoned = tool.is_threaded and tool.abandon_on_cancel
    what = "is not waited for any longer; it may still be at work" if abandoned else "was stopped"
    return f"{tool.name} took longer than {seconds:g} s and {what}"


def _positional(signature: Signature, arguments: Arguments) -> list[object]:
    """What can be given by position only; what is left out behind the last one given keeps its default."""
    given = [name in arguments for name in signature.positional]
    count = len(given) - given[::-1].index(True) if True in given else 0
    names = signature.positional[:count]
    return [arguments[name] if name in arguments else signature.fields[name].default for name in names]


def _is_async(fn: object) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


# --- making them ----------------------------------------------------------------------------------


class ToolDecorator:
    """What `tool(...)` with options gives: it takes the function."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[Callable[..., object]], Tool[..., object]]) -> None:
        self._make = make

    def __call__(self, fn: Callable[P, R_co], /) -> Tool[P, R_co]:
        """Make a tool of the function."""
        return cast("Tool[P, R_co]", self._make(fn))


@overload
def tool(fn: Callable[P, R_co], /) -> Tool[P, R_co]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    parallel: Parallel = False,
    timeout: float | None = None,
    output_limit: int | None = DEFAULT_OUTPUT_LIMIT,
    abandon_on_cancel: bool = False,
    reconcile: Reconcile | None = None,
) -> ToolDecorator: ...


def tool(
    fn: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    parallel: Parallel = False,
    timeout: float | None = None,
    output_limit: int | None = DEFAULT_OUTPUT_LIMIT,
    abandon_on_cancel: bool = False,
    reconcile: Reconcile | None = None,
) -> Tool[..., object] | ToolDecorator:
    """Make a tool of a function: `@tool`, or `@tool(effect="pure", parallel=True)`.

    The schema comes from the signature, the descriptions from the docstring (Google, NumPy or reST). A plain
    function runs in a thread, an async one as a task. A parameter annotated `ToolContext` receives the call. One
    annotated `trio.TaskStatus` makes the tool a service: the function is started in the agent's scope, what it
    gives to `started` is the result, and it goes on.

    Args:
        fn: a function, an async function, a method in the body of a class, or any callable with a signature.
        name: what models call it; otherwise the function's name.
        description: what models read; otherwise the first paragraph of the docstring.
        effect: what running a call twice does. `once` calls are never run again by themselves.
        parallel: whether a call may run beside others, or a function that says so for given arguments.
        timeout: seconds that a call may take. A plain function cannot be stopped, only waited for.
        output_limit: how many characters of text a result may have; None for any number.
        abandon_on_cancel: leave the thread of a plain function to itself when the call is cancelled.
        reconcile: finds out what became of a call whose process died: takes the `ToolCall`, returns the real
            result, or None if it cannot be known. Plain or async.

    Raises:
        UsageError: an option is out of range, or a parameter has no annotation that JSON can express.
    """
    names = sys._getframe(1).f_locals

    def make(fn: Callable[..., object]) -> Tool[..., object]:
        fn, receiver = _plain_function(fn)
        chosen = getattr(fn, "__name__", None) if name is None else name
        if not isinstance(chosen, str) or not _NAME.fullmatch(chosen):
            raise UsageError(f"a tool is named with 1 to 64 of A-Z a-z 0-9 _ -, not {chosen!r}; give name=")
        _check_options(chosen, effect, timeout, output_limit)
        doc = parse_docstring(getattr(fn, "__doc__", None))
        signature = read_signature(fn, doc, receiver=receiver, names=names)
        converter_of_tools()  # now, rather than in the first call, which would hold up the loop
        return Tool(
            name=chosen,
            description=doc.summary if description is None else description,
            parameters=signature.parameters,
            effect=effect,
            timeout=timeout,
            output_limit=output_limit,
            abandon_on_cancel=abandon_on_cancel,
            fn=fn,
            signature=signature,
            parallel=parallel,
            reconcile=reconcile,
        )

    return ToolDecorator(make) if fn is None else make(fn)


def schema_tool(
    fn: Callable[[Mapping[str, object], ToolContext], Awaitable[object]],
    /,
    *,
    name: str,
    description: str,
    parameters: Mapping[str, JsonValue] | FrozenJson,
    effect: Effect = "once",
    parallel: Parallel = False,
    timeout: float | None = None,
    output_limit: int | None = DEFAULT_OUTPUT_LIMIT,
    reconcile: Reconcile | None = None,
) -> Tool[..., object]:
    """Make a tool of a schema that came from elsewhere: `fn(arguments, context)` gets the JSON object as it is.

    Only that the arguments are a JSON object is checked here; whoever gave the schema checks the rest. The other
    options are those of `tool`.

    Raises:
        UsageError: no name, or the schema is no JSON object.
    """
    if not name:
        raise UsageError("a tool needs a name, a non-empty string")
    schema = parameters if isinstance(parameters, FrozenJson) else FrozenJson.of(dict(parameters))
    if not isinstance(schema.value, dict):
        raise UsageError(f"the parameters of tool {name!r} are a JSON schema, an object")
    _check_options(name, effect, timeout, output_limit)
    return Tool(
        name=name,
        description=description,
        parameters=schema,
        effect=effect,
        timeout=timeout,
        output_limit=output_limit,
        fn=fn,
        parallel=parallel,
        reconcile=reconcile,
    )


def _plain_function(fn: object) -> tuple[Callable[..., object], bool]:
    """The function to look at, and whether it takes an instance first."""
    if isinstance(fn, Tool):
        raise UsageError(f"{fn.name!r} is a tool already")
    if isinstance(fn, staticmethod):
        return fn.__func__, False
    if isinstance(fn, classmethod):
        raise UsageError("a class method becomes a tool from outside its class: tool(TheClass.the_method)")
    if isinstance(fn, type) or not callable(fn):
        raise UsageError(f"a tool is made of a function, not {fn!r}")
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise UsageError(
            f"tool {getattr(fn, '__qualname__', fn)}: a generator has no one result; return a list"
        )
    return fn, is_method(fn)


def _check_options(name: str, effect: object, timeout: object, output_limit: object) -> None:
    if effect not in get_args(Effect):
        raise UsageError(f"tool {name!r}: effect is one of {', '.join(get_args(Effect))}, not {effect!r}")
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0
    ):
        raise UsageError(f"tool {name!r}: timeout is a number of seconds above 0, or None, not {timeout!r}")
    if output_limit is not None and (type(output_limit) is not int or output_limit < 0):
        raise UsageError(
            f"tool {name!r}: output_limit is a number of characters, or None, not {output_limit!r}"
        )
