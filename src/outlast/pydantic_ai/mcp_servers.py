"""Calls of tools of MCP servers: which failures are answers of the server, and which calls may have happened."""

from collections.abc import Awaitable
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from outlast.core.limits import TEXT_CHARS_MAX
from outlast.errors import DefinitionError
from outlast.flow.outcomes import Declared, NotSent, Perhaps

REFUSALS: Final = (-32600, -32601, -32602)
"""JSON-RPC codes of requests that the server did not execute: invalid request, unknown method, invalid parameters."""


def check_error_behavior(toolset: AbstractToolset[Any], agent: str, where: str) -> None:
    """Raise DefinitionError if an MCPToolset, whose tools act, shows the model a lost connection as a failed call."""
    if getattr(toolset, "tool_error_behavior", "error") != "error":
        raise DefinitionError(
            f'toolset "{toolset.id}" of agent "{agent}" acts, and turns lost answers into retries',
            "pydantic-ai would ask the model to try again a call that may have happened",
            'write MCPToolset(…, tool_error_behavior="error"); errors that the server answers still go to the model',
            where=where,
        )


async def listed_tool(toolset: AbstractToolset[Any], name: str, context: RunContext[Any]) -> ToolsetTool[Any]:
    """Return a tool of a server, which proves that the server can be reached. Raises NotSent."""
    try:
        server = await toolset.for_run(context)
        async with server:
            return (await server.get_tools(context))[name]
    except Exception as error:  # no call has been sent, whatever the client raises
        why = f"{toolset.id} does not offer {name}: {type(error).__name__}: {error}"
        raise NotSent(why[:TEXT_CHARS_MAX]) from error


async def answer_of_server(call: Awaitable[object]) -> object:
    """Return the recorded form of the result of a call that acts, or of the error that the server answered.

    Raises Perhaps after any other error: that of a reconnection looks as if nothing was sent.
    """
    try:
        return await call
    except Declared:
        raise
    except Exception as error:  # of any layer of the client
        if (text := _answered(error)) is None:
            why = f"the MCP server gave no answer: {type(error).__name__}: {error}"
            raise Perhaps(why[:TEXT_CHARS_MAX]) from error
        return {"kind": "model_retry", "message": text}


def _answered(error: Exception) -> str | None:
    """Return the text of an error that the server answered, or None if the call may have happened."""
    from fastmcp.exceptions import McpError, ToolError  # imported here, because few agents have MCP servers

    if isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        return _answered(error.exceptions[0])
    if isinstance(error, ToolError) or (isinstance(error, McpError) and error.error.code in REFUSALS):
        return str(error)
    return None
