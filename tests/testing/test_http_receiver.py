"""The receiver under the fake receivers: its connections and the requests of callers that have gone."""

import asyncio

from outlast.testing.http_receiver import HttpReceiver, HttpRequest, Reply


def test_a_caller_that_has_gone_keeps_no_connection_and_its_request_is_carried_out() -> None:
    """Once ten thousand callers of a killed worker kept ten thousand descriptors, and later calls got none."""
    asyncio.run(_gone())


async def _gone() -> None:
    asked, go = asyncio.Event(), asyncio.Event()
    did: list[str] = []

    async def handle(request: HttpRequest) -> Reply:
        asked.set()
        await go.wait()
        did.append(request.path)
        return Reply(200, b"{}")

    receiver = HttpReceiver(handle)
    await receiver.open()
    try:
        host, _, port = receiver.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /slow HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n")
        await asyncio.wait_for(asked.wait(), 60)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 60) == b"" and did == []
        go.set()
        await receiver.quiet()
        assert did == ["/slow"]
        writer.close()
        await writer.wait_closed()
    finally:
        await receiver.close()
