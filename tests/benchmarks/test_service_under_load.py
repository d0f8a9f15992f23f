"""The benchmark of the service: a short run finds nothing wrong, and says what it did."""

from __future__ import annotations

import pytest

from tests.extras import needs_serve

pytestmark = needs_serve


@pytest.mark.slow
def test_a_short_run_finds_nothing_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    from service import main

    assert main(["--clients", "5", "--seconds", "2", "--pause", "0.1", "--kills", "1"]) == 0
    told = capsys.readouterr().out
    assert "520 long polls at once: {200: 500, 429: 20}" in told and "4 bodies that do not come: {408: 4}" in told
    assert "1 kills: " in told and " 0 wrong" in told
