"""The researcher with models without a script: one that reads, a careless one, and one that lies.

Each run has another register, drawn by its seed. Its answers are compared with the truth of that register.
"""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import outlast
from examples.negotiation.loopback import serve
from examples.researcher import fetching
from examples.researcher.answering import Answers, answering
from examples.researcher.claims import Answered
from examples.researcher.world import record
from examples.researcher.world.record import Journal
from examples.researcher.world.register import Known, Register
from examples.researcher.world.site import SiteServer
from outlast.agent.model import WAYS
from outlast.testing import ModelServer
from outlast.testing.model_server import PATH, URL
from tests import slices
from tests.examples.answering_killed import play as killed_and_calm
from tests.examples.answering_killed import wrong
from tests.examples.researching import GIVE_UP_S
from tests.reading_model import Variant, reader

pytestmark = pytest.mark.req("APP-4", "GATE-7")
SEEDS = range(20)
DRAWN = slices.params(SEEDS, 3, "registers of the researcher")
LIES = ("page", "value", "other question", "citation")
"""Question about which a lying model lies, by the remainder of its seed."""
RIGHT_MIN = 18
"""Of 20 questions that the site can answer."""
READ_S = 30.0


class Played(NamedTuple):
    """The end of a run: its answers, its results by key, the requests to the model, and the pages that were read."""

    answers: Answers
    rows: dict[str, Any]
    requests: int
    read: list[str]


def play(folder: Path, site: Register, variant: Variant, seed: int, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Answer the questions of a register. The seed also chooses how a request has the type of its answer."""
    monkeypatch.setattr(fetching, "TIMEOUT_S", READ_S)  # only a page that never ends would wait so long
    monkeypatch.setenv("OUTLAST_MODEL", f"local:{variant}")
    monkeypatch.setenv("OUTLAST_MODEL_RESULT_BY", WAYS[seed % len(WAYS)])
    journal = Journal(folder / "world.jsonl")

    async def carry() -> tuple[Answers, dict[str, Any]]:
        async with (
            serve(SiteServer(site, journal)) as url,
            outlast.connect("memory:") as client,
            client.worker([answering]),
        ):
            given = {"site": url, "questions": [known.question for known in site.questions]}
            run = await client.start("answering", given)
            async with asyncio.timeout(GIVE_UP_S):
                end = Answers.model_validate(await run.result(), from_attributes=True)
            found = (await client.results(run.id, limit=200)).results
            return end, {row.key: row.data for row in found}

    with ModelServer(reader(variant, seed), env=URL) as models:
        end, rows = asyncio.run(carry())
        assert not models.record.repeated(), "no request was paid twice"
        requests = len(models.record.of("executed", route=PATH))
    journal.close()
    return Played(end, rows, requests, [hit.path for hit in record.read(folder / "world.jsonl")])


def is_right(answer: Answered, known: Known) -> bool:
    """True if an answer passed the check and says what is true of the register."""
    return answer.status == "supported" and answer.value in known.values and set(answer.cites) == known.keys


def false_claims(site: Register, end: Played) -> list[Answered]:
    """Return the answers that passed the check and are not true."""
    pairs = zip(end.answers.answers, site.questions, strict=True)
    return [answer for answer, known in pairs if answer.status == "supported" and not is_right(answer, known)]


def test_the_registers_have_each_form_of_question_and_page() -> None:
    for seed in SEEDS:
        site = Register(seed)
        assert len(site.questions) == 25 and sum(not known.values for known in site.questions) == 5
        pages = [site.page(path) or "" for path in site.records]
        assert sum("ld+json" in page for page in pages) >= 5 and sum("<h1>" in page for page in pages) >= 5
    words = " ".join(known.question for seed in SEEDS for known in Register(seed).questions)
    assert all(each in words for each in ("quietest", "least efficient", "oldest", "cheaper than", "warranty", "COP"))


@pytest.mark.parametrize("seed", DRAWN)
@pytest.mark.parametrize("variant", ["reading", "careless"])
def test_a_model_that_reads_answers_from_what_it_read(
    tmp_path: Path, variant: Variant, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Register(seed)
    end = play(tmp_path, site, variant, seed, monkeypatch)
    assert end.rows == site.records, "each machine, from data or from words, and nothing else"
    assert list(end.answers.unread.values()) == ["the page cannot be read"]
    right = [is_right(answer, known) for answer, known in zip(end.answers.answers, site.questions, strict=True)]
    assert sum(right) >= RIGHT_MIN
    assert false_claims(site, end) == []
    assert not [path for path in end.read if "private" in path]
    articles = {entry.path for entry in site.by_path.values()} - site.records.keys()
    assert len(articles & set(end.read)) == 1, "the model chose the machines, one of which is broken"


@pytest.mark.parametrize("seed", DRAWN)
def test_no_claim_without_support_passes_the_check(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Register(seed)
    end = play(tmp_path, site, "lying", seed, monkeypatch)
    assert false_claims(site, end) == []
    assert not [path for path in end.read if "private" in path or "invented" in path]
    assert all(site.records[key] == row for key, row in end.rows.items())
    marked = [answer for answer in end.answers.answers if answer.status == "unsupported"]
    if LIES[seed % len(LIES)] == "page":
        assert len(end.rows) < len(site.records) and len(end.answers.unread) > 1, "the lies were told, and are marked"
    else:
        assert end.rows == site.records
        assert len(marked) > 15 and all(answer.objection and not answer.answer for answer in marked)


# --- killed processes --------------------------------------------------------------------------------------
@pytest.mark.req("RUN-1", "EFF-2")
def test_kills_change_no_answer_and_no_answer_of_the_model_is_paid_twice(tmp_path: Path) -> None:
    """A slice. `python -m tests.examples.answering_killed` plays as many rounds as wanted."""
    round_ = asyncio.run(killed_and_calm(tmp_path, Register(3), "careless", kills=2, seed=3))
    assert round_.killed.kills == 2 and wrong(round_) == []
