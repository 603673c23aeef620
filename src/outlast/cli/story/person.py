"""The second act: a person is asked, nothing runs, and a command in another terminal decides."""

import asyncio
import math

from outlast.cli.story.children import StoryBroken
from outlast.cli.story.scene import Scene, asks
from outlast.core.budget import HOUR, MINUTE
from outlast.core.machine import LeaseStatus
from outlast.core.rows import Approval, Run, is_over

PAUSE = 40 * HOUR  # unattended: how long the person lets it lie
REASON = "under budget"


class Person:
    """The wait for a decision. `alone`: nobody is there, so a process of our own decides."""

    def __init__(self, scene: Scene, *, alone: bool) -> None:
        self._scene = scene
        self._alone = alone
        self._shown = ""
        self._approving: asyncio.Task[None] | None = None

    async def play(self, approval: Approval) -> None:
        """From the question to the run's end, which fresh processes bring about."""
        scene = self._scene
        asked: Approval | None = approval
        while asked is not None:
            await scene.cast.send_home()
            await self._nobody()
            if asked.id != self._shown:
                await self._ask(asked)
            await self._until_due(asked)
            asked = await self._serve()
        await scene.cast.send_home()

    async def _ask(self, approval: Approval) -> None:
        scene, stage = self._scene, self._scene.stage
        self._shown = approval.id
        first, *more = approval.summary.split(". ")
        stage.say("\n".join([f"  ⏸ approve       {first}", *(f"                  {line}" for line in more)]))
        command = ("approvals", "approve", approval.id, "--reason", REASON)
        if self._alone:
            stage.say(await self._waiting(approval))
            await scene.move_clock(PAUSE)
            stage.say(f"    … {PAUSE // HOUR} hours of business time pass, and nothing runs")
            stage.say(f"{await self._waiting(approval)}\n    $ {stage.fit(scene.cast.command(*command))}")
            self._approving = asyncio.create_task(self._approve(*command))
        else:
            typed = stage.fit(scene.cast.command("-q", *command))  # -q: the worker that is missing starts here
            stage.must_say(f"\n  Approve it in another terminal; then a worker starts here:\n\n    {typed}\n")

    async def _nobody(self) -> None:
        """No process holds the run: no owner on its row, no lease alive, no worker process."""
        run = await self._scene.ops.run(self._scene.notes.run)
        alive = [w.id for w in await self._scene.ops.workers() if w.status is LeaseStatus.ALIVE]
        dead = {kill.worker for kill in self._scene.notes.kills}
        if run.owner or set(alive) - dead or self._scene.cast.workers:
            raise StoryBroken("a process still holds the run", f"owner {run.owner!r}, leases {alive}")

    async def _waiting(self, approval: Approval) -> str:
        return f"    waiting for {approval.who}{await self._left(approval)}"

    async def _left(self, approval: Approval) -> str:
        left = approval.within_until - (await self._scene.ops.store.now()).business
        hours, minutes = divmod(math.ceil(left / MINUTE), 60)
        span = f"{hours}h" + (f" {minutes}m" if minutes else "")
        return f" · no process holds the run · {span} left, then REQUIRES_ATTENTION"

    async def _approve(self, *command: str) -> None:
        """What the person would do, by a process of its own."""
        status, said = await self._scene.cast.person(*command)
        if status:
            raise StoryBroken(f"approvals approve ended with status {status}", said)
        self._scene.stage.say(f"      {said.partition(' · ')[0]}")

    async def _until_due(self, approval: Approval) -> None:
        """Until somebody has decided, or given the run another reason to move: a bid that came too late, a cancel."""
        scene = self._scene
        while True:
            run = await scene.look()
            if is_over(run) or await self._is_due(run):
                return
            if self._approving is None:
                scene.stage.now(f"    waiting for {approval.who}", await self._left(approval), works=False)
            elif self._approving.done():
                await self._approving
            await scene.pause()

    async def _is_due(self, run: Run) -> bool:
        return run.due_at is not None and run.due_at <= (await self._scene.ops.store.now()).real

    async def _serve(self) -> Approval | None:
        """A fresh process takes the run up. What it waits for when it has been given back; None when it is over."""
        scene = self._scene
        worker = scene.cast.hire(scene.inbox_url)
        scene.stage.now(f"  ▸ a fresh worker process {worker.name} (pid {worker.pid}) goes on")
        if self._approving is not None:
            await self._approving
        while not is_over(run := await scene.look()):
            at_rest = asks(run) and not run.owner and not await self._is_due(run)
            if at_rest and (approval := await scene.pending()):
                return approval
            await scene.pause()
        return None
