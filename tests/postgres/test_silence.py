"""A connection that goes silent without closing is given up, and the result of its COMMIT is found (S-9)."""

import asyncio
from collections.abc import Iterator
from functools import partial

import asyncpg
import pytest

from outlast.core.commit import Commit
from outlast.errors import StoreUnusable, Unavailable
from outlast.store.postgres import listener, reads, store
from outlast.store.postgres.connection import connect
from outlast.store.postgres.store import PostgresStore, open_postgres
from tests.conformance import subject as make
from tests.postgres import server
from tests.postgres.proxy import Wire, wire

PATIENCE_S = 60
SOON_S = 0.5


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    monkeypatch.setattr(reads, "reconnect", partial(connect, answer_s=SOON_S))
    monkeypatch.setattr(listener, "connect", partial(connect, answer_s=SOON_S))
    monkeypatch.setattr(listener, "PING_S", SOON_S)
    monkeypatch.setattr(store, "RENEWAL_S", SOON_S)
    with wire(server.url()) as made:
        yield made


async def opened(url: str, line: Wire) -> PostgresStore:
    made = await open_postgres(f"{line.url}?{url.partition('?')[2]}", writer="w")
    made._session._answer_s = SOON_S
    await made._session.drop()
    await made.commit(make.start(make.run_row()))
    return made


@pytest.mark.req("RT-5")
def test_commits_reads_and_renewals_over_a_silent_connection_recover(url: str, line: Wire) -> None:
    async def live() -> None:
        made = await opened(url, line)
        await asyncio.to_thread(made.urgent_sync, Commit(make.puts(make.worker_row())))
        line.silent = True
        asked = (
            made.commit(make.append_message(make.message_row(payload=b"lost"))),
            made.load(make.RUN, ("t", "run-1")),
            asyncio.to_thread(made.urgent_sync, Commit(make.puts(make.worker_row("w2")))),
        )
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), PATIENCE_S)
        assert [type(answer) for answer in answers] == [Unavailable] * 3, answers
        line.silent = False
        await asyncio.wait_for(made.commit(make.append_message(make.message_row(payload=b"later"))), PATIENCE_S)
        renewal = Commit(make.puts(make.worker_row("w2")))
        await asyncio.wait_for(asyncio.to_thread(made.urgent_sync, renewal), PATIENCE_S)
        assert [message.payload for message in await make.messages(made)] == [b"later"]
        await made.close()

    asyncio.run(live())


@pytest.mark.req("RT-5")
def test_a_commit_sent_before_the_silence_is_known_to_have_landed(url: str, line: Wire) -> None:
    """The connection goes silent with the COMMIT on it and resumes later. The result is found once."""

    async def live() -> None:
        made = await opened(url, line)
        line.hush_next = True
        posted = asyncio.ensure_future(made.commit(make.append_message(make.message_row(payload=b"passed"))))
        while not line.silent:  # noqa: ASYNC110 - the wire lives in another thread
            await asyncio.sleep(0.01)
        assert not posted.done()
        line.silent = False  # for new connections; the data of the old one is lost
        await asyncio.wait_for(posted, PATIENCE_S)
        assert [message.payload for message in await make.messages(made)] == [b"passed"]
        await made.close()

    asyncio.run(live())


@pytest.mark.req("GATE-2")
def test_a_listener_with_a_silent_connection_listens_again(url: str, line: Wire) -> None:
    async def live() -> None:
        speaker = await open_postgres(url, writer="speaker")
        made = await opened(url, line)
        heard = asyncio.Event()
        made.on_change(heard.set)
        await asyncio.wait_for(heard.wait(), PATIENCE_S)
        connections = line.connections
        line.silent = True
        while line.connections == connections:  # noqa: ASYNC110 - it gives the old one up and knocks again
            await asyncio.sleep(0.01)
        line.silent = False
        heard.clear()
        await asyncio.wait_for(heard.wait(), PATIENCE_S)  # it listens again
        heard.clear()
        await speaker.commit(make.start(make.run_row("run-2")))
        await asyncio.wait_for(heard.wait(), PATIENCE_S)
        await made.close()
        await speaker.close()

    asyncio.run(live())


@pytest.mark.req("RT-5")
def test_a_connection_that_breaks_during_opening_is_reported_as_unreachable(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a chaos round: the driver raises its own kind of error, once reported as a bug of Outlast."""

    async def torn(*args: object, **kwargs: object) -> None:
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    monkeypatch.setattr(store, "connect", torn)
    with pytest.raises(StoreUnusable, match="cannot be reached"):
        asyncio.run(open_postgres(url, writer="w"))
