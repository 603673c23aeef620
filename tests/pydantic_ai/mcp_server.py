"""A bank as an MCP server, with its own record. `python -m tests.pydantic_ai.mcp_server FOLDER` writes FOLDER/url.

While FOLDER/silent exists, a payment is made and not answered.
"""

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

FOLDER = Path(sys.argv[-1])
bank = MCPServer("bank", log_level="ERROR")


def record(line: str) -> None:
    with (FOLDER / "record").open("a") as file:
        file.write(f"{line}\n")


@bank.tool()
async def pay(order: str, cents: int) -> str:
    """Pay money back."""
    if cents < 0:
        raise ToolError("an amount is not negative")
    record(f"pay {order} {cents}")
    if (FOLDER / "silent").exists():
        await asyncio.Event().wait()
    return f"receipt of {order}"


@bank.tool()
async def balance(account: str) -> int:
    """Read a balance."""
    record(f"balance {account}")
    return 100


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(bank.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    (FOLDER / "new").write_text(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
    (FOLDER / "new").rename(FOLDER / "url")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
