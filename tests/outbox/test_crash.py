"""A dispatcher that dies at any place loses nothing: its successor sends what is left, under the same ids."""

import asyncio
import signal

import pytest

from outlast.core.crash_points import POINTS
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.store.queries import Owing
from outlast.upkeep.fsck import Fsck
from tests import forked
from tests.forked import ROOT
from tests.outbox.helpers import Receiver, a_store, answer, firsts, history, until, working

PLACES = [name for name in POINTS if name.startswith(("outbox.", "store.batch"))]
ON_A_SERVER = ("store.batch:before", "store.batch:after", "outbox.delivery:after")
DEATHS = (1, 2, 4, 3)  # at which touch each life ends
ONCE = {"outbox.found"}  # all that is untold is found in one pass, so each life touches it once


@pytest.mark.req("OUT-2")
@pytest.mark.parametrize(
    ("url", "place"),
    [*(("sqlite", place) for place in PLACES), *(("postgres", place) for place in ON_A_SERVER)],
    indirect=["url"],
)
def test_nothing_is_lost_wherever_a_dispatcher_dies(place: str, url: str) -> None:
    def life(url: str, n: int) -> forked.Popen:
        return forked.Popen(["tests.outbox.child", url, place, str(n)], cwd=ROOT)

    async def live() -> None:
        script = [answer(), answer(500)]
        async with a_store(url) as ops, Receiver(script=script).listening() as receiver:
            made = await ops.webhooks.add(receiver.url)
            runs = ["a", "b", "c"]
            async with working(ops.store):
                for run in runs:
                    await ops.start_run("rounds", {"left": 4}, run_id=run)

                async def over() -> bool:
                    return all([(await ops.rows.run(run)).ended_at for run in runs])

                await until(over)
            for n in (1, 1) if place in ONCE else DEATHS:
                died = await asyncio.to_thread(life(url, n).wait, 30)
                assert died == -signal.SIGKILL, "it died at this very place"
            last = life(url, 0)
            try:

                async def delivered() -> bool:
                    have = firsts(receiver.accepted)
                    return all([len(have.get(run, ())) == (await ops.rows.run(run)).seq for run in runs])

                async def quiet() -> bool:
                    owing = await ops.store.query(Owing("acme", made.webhook, 10))
                    return not owing and not await ops.store.rows(UNPUBLISHED, ())

                await until(delivered, within=30)
                await until(quiet, within=30)
            finally:
                last.kill()
                await asyncio.to_thread(last.wait)
            for run in runs:
                ids: dict[int, set[tuple[str, bytes]]] = {}
                for got in receiver.got:
                    if got.place[0] == run:
                        got.verified(made.secret)
                        ids.setdefault(got.place[1], set()).add((got.headers["webhook-id"], got.body))
                assert all(len(each) == 1 for each in ids.values()), "a repetition is the same message"
                assert firsts(receiver.got)[run] == [event.seq for event in await history(ops.store, run)]
            assert (await Fsck(ops.store).look()).findings == ()

    asyncio.run(live())
