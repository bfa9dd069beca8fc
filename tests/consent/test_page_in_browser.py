"""The page in a headless Chromium: somebody logs in, reads, and approves; nothing else is asked for or run."""

from pathlib import Path

import pytest

from collaborator.study_review.examination import Examination
from fedfair.consent.inbox import study_folder
from tests.browser import PHONE_WIDTH, Browser
from tests.consent import site
from tests.consent.served_page import served
from tests.consent.tab import Tab

HOSTILE = "<img src=x onerror=\"document.title='taken'\"></script><script>document.title='taken'</script>"


@pytest.mark.parametrize(("width", "dark"), [(PHONE_WIDTH, False), (1280, True)])
def test_a_person_logs_in_reads_what_differs_and_approves(
    browser: Browser, home: Path, found: Examination, width: int, dark: bool
) -> None:
    code = study_folder(home, "age-2").workspace / "src" / "own.py"
    code.parent.mkdir()
    code.write_text(f"# {HOSTILE}\n# {'a-long-word-' * 60}\n")
    with served(home, lambda _config, _plan: found) as page:
        tab = Tab(browser, width, dark=dark)
        tab.go(f"{page.address}/login/{page.links[-1]}")
        tab.press("button")
        assert tab.ask("location.pathname") == "/"
        tab.press("a[href='/study/age-2']")
        while "being looked at" in tab.text():
            tab.go(f"{page.address}/study/age-2")
        assert tab.ask("document.querySelector('button[value=approve]').disabled") is True
        for part in ("study", "policy", "ledger", "code"):
            tab.go(f"{page.address}/study/age-2/{part}")
            tab.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert tab.ask("document.documentElement.scrollWidth") == width
            assert tab.ask("document.querySelectorAll('script, img, iframe').length") == 0
            assert "taken" not in tab.ask("document.title")
        tab.press(".next a")
        tab.type("#person", "amina")
        tab.type("#passphrase", site.PASSWORDS["amina"])
        tab.press("button[value=approve]")
        assert "approved by amina; 1 more approval is awaited" in tab.text()
        assert tab.ask("document.cookie") == ""
        tab.press("nav button")
        assert "you have logged out" in tab.text()
        assert tab.complaints == []
        assert all(address.startswith(page.address) for address in tab.requests)
        tab.close()
