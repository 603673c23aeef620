"""`outlast demo`: a supplier auction that survives a crash and waits for a person, with nothing to install."""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

BROKEN_OFF = 130
WIDE = 100_000  # columns of a pipe: no command is folded in it
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TITLE = "demo: a supplier auction that survives a crash and a human"


@click.command()
@click.option("--approve", is_flag=True, help="Go on unattended: approve by a process of our own.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the facts, and nothing else.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the story is kept; one broken off goes on.")
@click.option("--keep/--no-keep", default=None, help="Keep a temporary folder [keep; with --json: no].")
@click.option("--speed", type=click.IntRange(1, 100_000), default=20_000, help="Speed of the wait for bids [20000].")
@click.option("--sample", metavar="NAME", help="Play another purchase; an unknown name lists them [leverage].")
def demo(approve: bool, as_json: bool, folder: Path | None, keep: bool | None, speed: int, sample: str | None) -> None:
    """A supplier auction whose worker is killed in round 3, and which then waits for a person.

    Real processes on a SQLite file in a temporary folder, or on the empty store that --store names: another worker
    takes over, nobody is invited twice, and nothing runs while the order waits for approval. The end is proven from
    the store and the suppliers' own record, and told in a report in the folder. --sample plays one of the other
    purchases, without a kill.
    """
    given = folder is not None
    sample = None if sample == "leverage" else sample
    place = (folder or Path(tempfile.mkdtemp(prefix="outlast-demo-"))).absolute()
    store = _store_given()
    kept = given or (keep if keep is not None else not as_json)
    try:
        holds = _play(place, store, approve=approve, as_json=as_json, speed=speed, sample=sample, kept=kept)
    except (KeyboardInterrupt, asyncio.CancelledError):
        click.echo(_broken_off(place, approve=approve), err=True)
        sys.exit(BROKEN_OFF)
    if holds and not kept:
        shutil.rmtree(place)
    sys.exit(0 if holds else 1)


def _store_given() -> str:
    """The store named on this very line, or ''. One that the environment or a file names is somebody's for other
    purposes: the demo lets business time run, for every run of its store."""
    from outlast.cli.session import settings_now

    said = settings_now()
    return said.store if "store" in said.given else ""


def _play(
    folder: Path, store: str, *, approve: bool, as_json: bool, speed: int, sample: str | None, kept: bool
) -> bool:
    from outlast.cli.story.notes import read
    from outlast.cli.story.stage import stage

    folder.mkdir(parents=True, exist_ok=True)
    notes = read(folder)
    notes.save(folder)
    with stage(json=as_json) as shown:
        shown.say(f"\noutlast · {f'demo: {sample}' if sample else TITLE}\n")
        proof = asyncio.run(
            _perform(folder, store, notes, shown, approve=approve, speed=speed, sample=sample, kept=kept)
        )
    if as_json:
        click.echo(json.dumps(proof.facts, ensure_ascii=False))
    return bool(proof.holds)


async def _perform(
    folder: Path, url: str, notes: Any, shown: Any, *, approve: bool, speed: int, sample: str | None, kept: bool
) -> Any:
    """The story, which SIGINT, SIGTERM and SIGHUP break off in good order."""
    from outlast.cli.story.cast import Place
    from outlast.cli.story.example import locate
    from outlast.cli.story.notes import claim
    from outlast.cli.story.play import Play
    from outlast.cli.story.sample import Sample
    from outlast.runtime.open import open_store

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop() -> None:
        for number in STOPS:  # once: the ending is not to be interrupted, it leaves no process behind
            loop.add_signal_handler(number, lambda: None)
        task.cancel()

    for number in STOPS:
        loop.add_signal_handler(number, stop)
    store = await open_store(url or f"sqlite:{folder / 'outlast.db'}")
    try:
        await claim(notes, store, given=bool(url))
        place = Place(folder, url or store.url, store.url, kept)
        if sample:
            return await Sample(store, place, notes, shown, locate(), name=sample, alone=approve).perform()
        return await Play(store, place, notes, shown, locate(), alone=approve, speed=speed).perform()
    finally:
        await store.close()


def _broken_off(place: Path, *, approve: bool) -> str:
    """What is safe, where it is, and how to go on."""
    from outlast.cli.story import notes as kept
    from outlast.cli.story.cast import program
    from outlast.cli.story.stage import folded

    notes = kept.read(place)
    if not notes.run:
        return "\nStopped before the run began; there is nothing to go on with."
    elsewhere = ["--store", notes.store] if notes.store else []
    more = ["--approve"] if approve else []
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else WIDE
    command = folded([*program(), *elsewhere, "demo", "--folder", f"{place}", *more], width)
    safe = f"Stopped. 1 run is safe in {notes.store or place / 'outlast.db'}; every process has ended."
    return f"\n{safe} Go on with:\n\n    {command}\n"
