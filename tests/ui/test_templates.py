"""House rules of the templates: nothing that the content security policy forbids or that would weaken it."""

import re
from importlib.resources import files

import pytest

from outlast.ui.shown_text import PLAIN, parts

TEMPLATES = {
    each.name: each.read_text(encoding="utf-8")
    for each in files("outlast.ui").joinpath("templates").iterdir()
    if each.name.endswith(".html")
}
NEVER = {
    "inline style": r"\sstyle\s*=|<style",
    "inline handler": r"\son[a-z]+\s*=",
    "inline script": r"<script(?![^>]*\bsrc=)",
    "script of htmx": r"hx-on|hx-vals\s*=\s*['\"]?js:|\bjs:|javascript:",
    "unescaped text": r"\|\s*safe\b|Markup\(|autoescape\s+false",
    "other host": r"(href|src|action|hx-get|hx-post)\s*=\s*[\"']?(https?:)?//",
    "attribute without quotes": r"\s[a-z-]+=\{\{",
    "form to another place": r"formaction\s*=\s*\"(?!\{\{ root \}\}/ui/)|<(iframe|object|embed|base)\b",
    "htmx that evaluates": r"hx-(boost|ext|history|inherit|vars|request|headers|disable)\b",
}
WITHOUT_RULES = {"answer", "warning", "maps", "history", "json", "back", "tenant", "copy"}
"""Classes that only scripts and tests use."""
WITHOUT_CALLS = {"run_results.html"}
"""Templates with keys of another kind, which are stored as they were given."""
TAG = re.compile(r"<[a-z][^<>]*(?:\{\{.*?\}\}[^<>]*|\{%.*?%\}[^<>]*)*>", re.DOTALL)


KEY = re.compile(r"(?<!row)(?<!kept)\.key\b(?! \| (key_text|as_id))(?! (or|and|!=))")
"""Key of a call in an expression, which is stored percent-encoded. A row of a story has it decoded."""


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_keys_of_calls_are_shown_decoded(name: str) -> None:
    shown = [part.text for part in parts(TEMPLATES[name]) if part.text.startswith("{{") and part.inside in ("", *PLAIN)]
    commands = r"parts\.command\(.*"
    found = [text for text in shown if KEY.search(re.sub(commands, "", text)) and name not in WITHOUT_CALLS]
    assert not found


def broken(text: str) -> list[str]:
    """Return the rules that a template breaks."""
    text = re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)
    found = [rule for rule, pattern in NEVER.items() if re.search(pattern, text, re.IGNORECASE)]
    tags = [each for each in TAG.findall(text) if re.search(r"\shx-(?!nonce)[\w:-]+=", each)]
    found += ["htmx without the nonce" for tag in tags if 'hx-nonce="{{ nonce }}"' not in tag]
    forms = re.findall(r"<form\b.*?</form>", text, re.DOTALL | re.IGNORECASE)
    posts = [form for form in forms if 'method="post"' in form.lower()]
    found += ["form without its token" for form in posts if not re.search(r"[{ .]token\(\)", form)]
    return found


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_keeps_the_rules(name: str) -> None:
    assert broken(TEMPLATES[name]) == []


def test_each_class_of_a_template_has_a_rule() -> None:
    """A merge once removed the rules of five sections, and every other test passed."""
    style = files("outlast.ui").joinpath("static", "outlast.css").read_text(encoding="utf-8")
    ruled = set(re.findall(r"\.([A-Za-z][\w-]*)", style))
    given = {
        word
        for text in TEMPLATES.values()
        for found in re.findall(r'class="([^"]*)"', re.sub(r"\{[{%].*?[}%]\}", " ", text))
        for word in found.split()
    }
    assert given - ruled == WITHOUT_RULES


def test_no_base_template_declares_a_block_of_another_one() -> None:
    """Else a page fills both: run_base.html had the block of the title of base.html, so a title had a whole tab."""
    blocks = {name: set(re.findall(r"{% block (\w+) %}", text)) for name, text in TEMPLATES.items()}
    assert blocks["base.html"] >= {"content", "page_title"}
    assert blocks["base.html"] & blocks["run_base.html"] == {"content"}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('<p style="color:red">', "inline style"), ("<p onclick='x()'>", "inline handler"),
        ("<script nonce=\"{{ nonce }}\">x</script>", "inline script"), ('<p hx-on:click="x">', "script of htmx"),
        ("{{ text|safe }}", "unescaped text"), ('<a href="https://cdn.example/x">', "other host"),
        ("<p title={{ text }}>", "attribute without quotes"), ('<p hx-get="/x">', "htmx without the nonce"),
        ('<form method="post"><button>Go</button></form>', "form without its token"),
        ('<button formaction="/v1/x">', "form to another place"), ('<a href="javascript:x">', "script of htmx"),
    ],
)  # fmt: skip
def test_a_planted_break_is_found(text: str, rule: str) -> None:
    assert rule in broken(text)
