"""Part of `scripts/fuzz`: a few hundred generated requests, none of them answered with 5xx."""

from tests.service.conftest import Running
from tests.service.fuzz import play


def test_no_generated_request_is_answered_5xx(folder_url: str) -> None:
    with Running(folder_url) as service:
        report = play(service, 350)
        assert report.faults == []
        assert report.sent > 250 and len(report.by_operation) > 25
        assert report.by_status[200] > 20 and report.by_status[422] > 20, "both kinds got through"
        assert service.get("/healthz").status_code == 200
