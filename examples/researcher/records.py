"""Values of the researcher: its input, its state, and the records that it collects."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def printable(text: str) -> str:
    """Return the text. Raises ValueError if it has control or direction characters, which could deceive a reader."""
    if not text.isprintable():
        raise ValueError("text with control characters")
    return text


Text = Annotated[str, Field(min_length=1, max_length=80), AfterValidator(printable)]


class Question(BaseModel):
    """Input of a run: what to collect, and the address of the site to collect it from."""

    site: str
    question: str


class Topic(BaseModel):
    """A part of the site, as its front page lists it. The description is text of the site: data for a model."""

    path: str
    title: str
    about: str


class Research(Question):
    """State of a run: pointers and a cursor. Records are results, and pages are never stored."""

    delay: float = 0.0
    """Seconds between two requests, from robots.txt."""
    topics: list[Topic] = []
    topics_read: list[str] = []
    topic: str = ""
    """The topic under way; `cursor` is the address of its next list, and `why` the model's reason."""
    cursor: str = ""
    lists: int = 0
    why: str = ""
    refused: list[str] = []
    """Reasons why the last proposals of the model were refused. It gets them with the next request."""
    conclusion: str = ""


class Conclusion(BaseModel):
    """Outcome of a run. The number of records is not in it, because the results are counted where they are read."""

    topics_read: list[str]
    conclusion: str


class HeatPump(BaseModel):
    """One record: a heat pump as its page describes it. Strict, because pages are written by others."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    maker: Text
    name: Text
    kind: Text
    year: int = Field(ge=1980, le=2035)
    noise_db: float = Field(ge=15, le=100)
    cop: float = Field(ge=1, le=10)
    price_eur: int = Field(ge=100, le=200_000)


class Page(BaseModel):
    """What one page of the site holds. All fields are empty for a page without records and links."""

    moved_to: str = ""
    """Address that this page names instead of its own: of a redirect, or canonical."""
    record: HeatPump | None = None
    topics: list[Topic] = []
    entries: list[str] = []
    count: int = 0
    """Number of entries of the topic, as the list says."""
    more: str = ""
    """Address of the next list of entries."""
    titles: dict[str, str] = {}
    """Texts of the links to the entries, by address."""
    text: str = ""
    """Paragraphs of a page without data. Only a model can take a record from them."""
