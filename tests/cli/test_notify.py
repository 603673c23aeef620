"""`outlast notify`: an address is read from a file, and neither output nor audit shows it."""

import pytest

from outlast.cli.exit_codes import CONFLICT, USAGE
from outlast.cli.root import _without_secrets
from tests.cli.conftest import Terminal

pytestmark = pytest.mark.req("OUT-1")
ADDRESS = "ntfys://93.184.216.34/canary-topic-4711"


def test_a_subscription_is_added_listed_and_removed_without_its_address(outlast: Terminal) -> None:
    outlast.start()
    assert "approvers are not told yet" in outlast("notify", "ls").out
    (outlast.folder / "address").write_text(f"{ADDRESS}\n", encoding="utf-8")
    answers = [
        outlast(
            "notify",
            "add",
            f"@{outlast.folder / 'address'}",
            "--for",
            "finance",
            "--on",
            "asked",
            "--name",
            "phones",
        ),
        outlast("-o", "json", "notify", "add", ADDRESS, "--for", "person:ana"),
        outlast("notify", "add", ADDRESS, "--every"),
    ]
    assert [answer.code for answer in answers] == [0, 0, 0], answers
    assert "tells role finance by ntfys://93.184.216.34/…" in answers[0].out
    assert (answers[1].json["audience"], answers[1].json["types"]) == ("person:ana", [])
    shown = outlast("notify", "ls")
    assert "role finance" in shown.out and "about every approval" in shown.out and "phones" in shown.out
    name = answers[1].json["webhook"]
    assert outlast("webhooks", "rotate", name).code == CONFLICT
    detail = outlast("webhooks", "show", name)
    assert "person:ana" in detail.out
    assert outlast("notify", "rm", name).code == 0
    for text in (shown.out, shown.err, detail.out, *(answer.out + answer.err for answer in answers)):
        assert "canary" not in text


def test_the_audit_line_of_a_command_has_no_address() -> None:
    words = ["notify", "add", ADDRESS, "--for", "finance", "--store=sqlite:x"]
    assert _without_secrets(words) == ["notify", "add", "ntfys://[redacted]", *words[3:]]
    assert _without_secrets(["run", ADDRESS]) == ["run", ADDRESS]
    for typed in ("T1/B2/C3secret", "SLACK://T1/B2/C3secret", "ntfys:/host/C3secret", "C3secret", "a:C3secret@host"):
        for words in (["webhooks", "add", typed], ["notify", "add", "--every", typed], ["notify", "add", "--", typed]):
            assert "C3secret" not in " ".join(_without_secrets(words)), words
    kept = ["--url", "https://outlast.example.com", "webhooks", "add", "@/etc/address", "--name", "a/b", "--type=x"]
    assert _without_secrets(kept) == kept


MISTAKES = (
    (ADDRESS,), (ADDRESS, "--for", "a", "--every"), ("smtp://canary", "--every"), ("@missing", "--every"),
    (ADDRESS, "--for", "person:"), (ADDRESS, "--every", "--on", "decided"),
)  # fmt: skip


def test_a_mistake_is_named_without_the_address(outlast: Terminal) -> None:
    outlast.start()
    for words in MISTAKES:
        answer = outlast("notify", "add", *words)
        assert answer.code == USAGE and "canary" not in answer.out + answer.err, answer
