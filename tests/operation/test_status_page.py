"""The status page, as a real browser shows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ingestor.observe.http import HttpServer
from ingestor.observe.metrics import Metrics
from ingestor.observe.page import page as the_page
from tests.support.fakes.state import FakeState, shown
from tests.support.kafka import topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.chromium import Chromium, Page
    from tests.support.process.ingestors import Deploy

VERDICT = "document.getElementById('verdict').textContent"


@pytest.fixture
def state() -> FakeState:
    state = FakeState()
    state.shown = shown
    return state


@pytest.fixture
def server(state: FakeState) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, state, Metrics().registry)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def page(browser: Chromium, server: HttpServer) -> Iterator[Page]:
    """The page, after its first answer; whatever happens in a test, the console stays silent."""
    page = browser.open(server.url)
    page.wait_for(f"{VERDICT} === 'ready'")
    yield page
    assert page.complaints == []
    page.close()


def cells(page: Page, table: str) -> list[list[str]]:
    """Return what stands in a table's body."""
    there = f"[...document.querySelectorAll('{table} tbody tr')]"
    found: list[list[str]] = page.run(f"{there}.map(row => [...row.cells].map(cell => cell.innerText))")
    return found


def test_every_value_is_there(page: Page) -> None:
    """In words and numbers that a person reads, and in the chart."""
    assert cells(page, ".route") == [
        ["orders", "0", "0", "90", "5 s", ""],
        ["orders", "1", "1,000", "91", "5 s", ""],
        ["orders", "2", "2,000", "92", "5 s", ""],
    ]
    text = page.text
    for part in (
        "ingestor shop",
        "version 1.2.3, up for 30 min",
        "3.0 MiB of 32 MiB",
        "s3://lake/events",
        "breaker closed",
    ):
        assert part in text
    assert "64 MiB of 128 MiB" in text
    assert page.run("document.querySelector('meter').value") == 64 << 20
    assert cells(page, "#commits")[0][1:] == ["events", "77", "4,321", "0.250", "abc123"]
    assert "None since the start." in text
    label = page.run("document.querySelector('#speed svg').getAttribute('aria-label')")
    assert label == "Records read per second over the last 15 minutes: now 200, at most 250"
    assert page.run("document.querySelector('#lag path:not(.area)').getAttribute('d')").count("M") == 2  # a gap


def test_it_updates_by_itself(page: Page, state: FakeState) -> None:
    """Without a reload: the same nodes change."""
    page.run("window.mark = document.querySelector('.route tbody tr')")
    changed = shown(ready=False, reasons=["route events: breaker is open"])
    changed["routes"]["events"] |= {"state": "paused", "breaker": "open"}
    changed["routes"]["events"]["partitions"][0]["lag"] = 98765
    changed["errors"] = [
        {"at": 0, "level": "error", "route": "events", "what": "it broke", "hint": "mend it", "count": 3}
    ]
    state.shown = lambda: changed
    page.wait_for(f"{VERDICT} === 'not ready'")
    assert cells(page, ".route")[0][2] == "98,765"
    assert cells(page, "#errors") == [["00:00:00", "events", "it broke", "mend it", "3"]]
    assert "route events: breaker is open" in page.text
    assert page.run("document.title") == "not ready: ingestor shop"
    assert page.run("window.mark.isConnected")
    state.shown = shown
    page.wait_for(f"{VERDICT} === 'ready'")
    assert cells(page, "#errors") == []


def test_an_outage_of_kafka_is_named_and_no_route_is_green(page: Page, state: FakeState) -> None:
    """What was known last is marked."""
    why = "Kafka is away: no broker at kafka:9092 can be reached"
    away = shown(ready=False, reasons=[why], kafka_up=False, stale=True, lag=3000)
    away["routes"]["events"] |= {"state": "waiting", "why": why}
    state.shown = lambda: away
    page.wait_for(f"{VERDICT} === 'not ready'")
    assert page.run("document.querySelector('.route .state').className") == "state warn"
    assert page.run("document.querySelector('.route .failure').textContent") == why
    assert page.run("document.querySelector('.behind').textContent") == "3,000, last known"
    assert page.run("document.querySelector('#lag strong').textContent") == "3,000"
    assert page.run("document.querySelector('.age').textContent") == "12 s"


HOSTILE = "<img src=x onerror='document.title=1'></script><script>document.title=1</script>&amp;\u202e\"'"


def test_a_hostile_name_stays_text(page: Page, state: FakeState) -> None:
    """Wherever it may stand."""
    bad = shown(app_id=HOSTILE, reasons=[HOSTILE], ready=False)
    route = bad["routes"].pop("events") | {"table": HOSTILE, "failure": HOSTILE, "state": HOSTILE, "breaker": HOSTILE}
    bad["routes"][HOSTILE] = route
    route["partitions"][0]["topic"] = HOSTILE
    bad["commits"][0] |= {"route": HOSTILE, "commit_id": HOSTILE}
    bad["errors"] = [{"at": 0, "level": HOSTILE, "route": HOSTILE, "what": HOSTILE, "hint": HOSTILE, "count": 1}]
    state.shown = lambda: bad
    page.wait_for(f"{VERDICT} === 'not ready'")
    assert cells(page, ".route")[0][0] == HOSTILE
    assert page.run("document.querySelector('h3').textContent") == HOSTILE
    assert page.run("document.querySelectorAll('img').length + document.querySelectorAll('script').length") == 1
    assert page.run("document.title") == f"not ready: ingestor {HOSTILE}"


def test_nothing_from_elsewhere_may_run(page: Page) -> None:
    """Should a name ever become markup, the policy stops it."""
    page.run("document.body.insertAdjacentHTML('beforeend', '<button id=x onclick=\"document.title=1\">x</button>')")
    page.run("document.getElementById('x').click()")
    assert page.run("document.title") == "ingestor shop"
    assert any("Content Security Policy" in complaint for complaint in page.complaints)
    page.forgive()


def test_it_says_when_nobody_answers_and_goes_on_when_somebody_does(
    browser: Chromium, server: HttpServer, state: FakeState
) -> None:
    """What it shows then is old."""
    page = browser.open(server.url)
    page.wait_for(f"{VERDICT} === 'ready'")
    server.stop()
    page.wait_for("document.getElementById('silent').textContent.startsWith('No answer from the ingestor since ')")
    again = HttpServer("127.0.0.1", server.port, state, Metrics().registry)
    again.start()
    page.wait_for("document.getElementById('silent').textContent === ''")
    again.stop()
    page.close()


def test_updates_can_be_paused_and_all_is_reached_by_keyboard(page: Page, state: FakeState) -> None:
    """Skip link, pause, charts, tables, in this order; arrows read the chart."""
    visited = []
    for _ in range(4):
        page.press("Tab")
        visited.append(page.run("document.activeElement.id || document.activeElement.className"))
    assert visited == ["skip", "pause", "speed", "lag"]
    assert page.run("document.querySelector('#lag strong').textContent") == "30"
    page.press("ArrowLeft")
    assert page.run("document.querySelector('#lag strong').textContent").endswith(": 30")
    page.press("ArrowLeft")
    assert page.run("document.querySelector('#lag strong').textContent").endswith(": \N{EN DASH}")
    page.press("ArrowLeft")
    assert page.run("document.querySelector('#lag strong').textContent").endswith(": 10")
    page.press("Escape")
    assert page.run("document.querySelector('#lag strong').textContent") == "30"
    page.run("document.getElementById('pause').click()")
    assert page.run("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    state.shown = lambda: shown(app_id="changed")
    page.run("turn()")
    assert page.run("document.getElementById('app').textContent") == "shop"
    page.run("document.getElementById('pause').click()")
    page.wait_for("document.getElementById('app').textContent === 'changed'")


def test_a_screen_reader_finds_names_for_everything(page: Page) -> None:
    """Regions, charts and tables have names; what changes is told."""
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    named = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if "role" in node}
    assert {
        ("heading", "ingestor shop"),
        ("button", "Pause updates"),
        ("region", "Partitions of events"),
        ("region", "Last commits"),
        ("meter", "Buffer of events"),
        ("columnheader", "Committed offset"),
        ("image", "Lag in records over the last 15 minutes: now 30, at most 30"),
    } <= named
    assert {"status", "alert", "main", "banner"} <= {role for role, _ in named}
    unnamed = {role for role, name in named if role in ("button", "link", "region", "image", "meter") and not name}
    assert not unnamed


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_it_fits_any_screen(page: Page, width: int) -> None:
    """Nothing but the tables scrolls sideways."""
    page.size(width, 800, phone=width < 800)
    assert page.run("document.documentElement.scrollWidth") == width


def test_many_partitions_are_shown_from_the_worst_on(page: Page, state: FakeState) -> None:
    """A thousand rows help nobody."""
    many = shown()
    one = many["routes"]["events"]["partitions"][0]
    many["routes"]["events"]["partitions"] = [{**one, "partition": n, "lag": n % 997} for n in range(1000)]
    state.shown = lambda: many
    page.wait_for("document.querySelectorAll('.route tbody tr').length === 50")
    assert cells(page, ".route")[0][:3] == ["orders", "996", "996"]
    assert "The 50 of 1,000 partitions that are furthest behind" in page.text


def test_a_publisher_of_dead_letters_has_its_page_too(page: Page, state: FakeState) -> None:
    """It has routes, and none of the rest."""
    state.shown = lambda: {
        "routes": {"events": {"published": 1234, "failure": None}, "orders": {"published": 0, "failure": "no topic"}},
        "turns": 3,
        "last_turn_at": 0,
        "ready": False,
        "reasons": ["route orders: no topic"],
    }
    page.wait_for(f"{VERDICT} === 'not ready'")
    assert "1,234 published" in page.text
    assert "no topic" in page.text
    assert "Records read per second" not in page.text
    assert page.run("document.getElementById('silent').textContent") == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_can_be_read(page: Page, scheme: str) -> None:
    """At least 4.5 to 1 against what is behind it, as WCAG AA asks."""
    page.scheme(scheme)
    names = ("text", "soft", "speed", "lag", "good", "warn", "bad")
    style = "getComputedStyle(document.documentElement).getPropertyValue('--%s').trim()"
    for behind in ("page", "card"):
        ground = page.run(style % behind)
        for name in names:
            colour = page.run(style % name)
            assert contrast(colour, ground) >= 4.5, (name, behind)


def contrast(one: str, other: str) -> float:
    """Return WCAG's contrast of two colours."""
    dark, light = sorted(luminance(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """Return how bright a colour is, from 0 to 1."""
    digits = colour.removeprefix("#")
    digits = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_the_page_needs_nothing_else() -> None:
    """No address of anybody else is in it but a namespace's name."""
    found = set(re.findall(rb"https?://[^\"' ]*", the_page().body))
    assert found == {b"http://www.w3.org/2000/svg"}
    assert not re.search(rb"<(script|link|img|iframe)[^>]+(src|href)=\"(?!data:,)", the_page().body)


@pytest.mark.integration
def test_a_real_ingestor_shows_what_it_does(browser: Chromium, kafka: Cluster, deploy: Deploy) -> None:
    """Records come, and the page follows by itself."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    topics.produce(kafka.bootstrap, topic, [b"x"] * 100)
    deployment = deploy(topic, http={"port": 0})
    ingestor = deployment.start()
    url = ingestor.wait_for("http server listens")[0]["url"]
    page = browser.open(url)
    page.wait_for(f"{VERDICT} === 'ready'")
    landed = (
        "[...document.querySelectorAll('#commits tbody tr')].reduce((sum, row) => sum + +row.cells[3].innerText, 0)"
    )
    page.wait_for(f"{landed} === 100")
    topics.produce(kafka.bootstrap, topic, [b"y"] * 50)
    page.wait_for(f"{landed} === 150")
    page.wait_for("document.querySelector('.behind').textContent === '0'")
    shown_offsets = {row[1]: int(row[3].replace(",", "")) for row in cells(page, ".route")}
    assert {f"{deployment.app_id}/{topic}/{number}": at for number, at in shown_offsets.items()} == deployment.txns()
    assert page.complaints == []
    page.close()
