"""The page of a cluster in a real headless Chromium, with a service behind it that answers as the documents say."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote

import pytest

from tests.serving.services import service as started_by_hand
from tests.serving.services import submit
from tests.views.test_html_in_browser import browser

from jigsaw_opt.serving.page import cluster_page  # isort: skip
from jigsaw_opt.serving.service import EventRequest, Service  # isort: skip

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser"]

pytestmark = pytest.mark.xdist_group("browser")
HOSTILE = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>\u202e"
NOW = 1_767_225_600_000_000


def view(servers: int = 4, gpus: int = 4, per_rack: int = 2, width: int = 4) -> dict[str, Any]:
    """A cluster on which jobs of a width run side by side, but for a last one that waits."""
    count = servers * gpus
    jobs = [f"job{k}" for k in range((count - gpus) // width)]
    names = [*jobs, HOSTILE]
    rest = {"model": "bert", "gpus": width, "queue": "q", "state": 0, "weight": 1, "submitted_us": NOW - 3_600_000_000}
    columns = {key: [value] * len(names) for key, value in {**rest, "progress": 0.25, "reason": "It runs."}.items()}
    columns["state"][-1], columns["reason"][-1] = 1, "It waits for 4 GPUs, and 0 GPUs are free."
    states = [0] * servers
    states[-1] = 1
    return {
        "time_us": NOW,
        "sequence": 7,
        "policy": "fifo",
        "shadow": False,
        "servers": {
            "name": [f"s{k}" for k in range(servers)],
            "rack": [k // per_rack for k in range(servers)],
            "type": ["v100"] * servers,
            "first": [gpus * k for k in range(servers)],
            "state": states,
        },
        "racks": [f"rack{k}" for k in range(-(-servers // per_rack))],
        "gpus": {
            "state": [states[gpu // gpus] for gpu in range(count)],
            "job": [gpu // width if gpu < len(jobs) * width else -1 for gpu in range(count)],
            "second": [-1] * count,
        },
        "jobs": {"name": names, **columns},
        "waiting": [len(names) - 1],
        "links_down": ["up0"],
    }


class Addressed(Protocol):
    """Something that listens."""

    @property
    def address(self) -> str: ...


class Fake(ThreadingHTTPServer):
    """A service that shows one view, and notes the events that it is sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.view, self.role, self.token, self.events = view(), "operate", "", list[Any]()
        self.changed = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def answer(self, path: str) -> Any:
        name, _, what = path.removeprefix("/v1/jobs/").partition("/")
        match path, what:
            case "/v1/view", _:
                return self.view
            case "/v1/caller", _:
                return {"name": "ann", "role": self.role}
            case "/v1/usage", _:
                times = [NOW - 3_600_000_000, NOW - 1_800_000_000]
                return {"time_us": times, "in_use": [4, 8], "up": [16, 12], "waiting": [0, 1]}
            case _, "start":
                return {"median_us": NOW + 1_200_000_000, "warnings": []}
            case _, "explanation":
                return {"reason": "it waits for 4 GPUs.", "remedies": [], "influences": [], "cluster": "Of 16 GPUs."}
        state = "running" if name.startswith("job") else "waiting"
        job = {
            "name": unquote(name),
            "state": state,
            "on": [],
            "model": "bert",
            "gpus": 4,
            "queue": "q",
            "weight": 1,
            "submitted_us": NOW,
        }
        row = {"time_us": NOW, "what": "submit", "who": "ann", "before": [], "after": ["s0/0"], "text": HOSTILE}
        return {"job": {**job, "progress": 0.5, "reason": ""}, "story": [row]}


class Answers(BaseHTTPRequestHandler):
    server: Fake

    def log_message(self, *_: object) -> None:
        pass

    def told(self, body: Any, status: int = 200) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        if self.path == "/":
            page = cluster_page()
            self.send_response(200)
            for name, value in {**page.headers, "Content-Type": "text/html; charset=utf-8"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page.text.encode())
        elif self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            self.told({"problems": [{"path": "Authorization", "message": "a known token is needed"}]}, 401)
        elif self.path.startswith("/v1/changes"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            while self.server.changed.wait(20):
                self.server.changed.clear()
                self.wfile.write(b"event: change\nid: 8\ndata: {}\n\n")
                self.wfile.flush()
        else:
            self.told(self.server.answer(self.path))

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if event["job"] == "job1":
            self.told({"problems": [{"path": "$.job", "message": HOSTILE}]}, 422)
            return
        self.server.events.append(event)
        self.told({"accepted": 1, "without_effect": [], "sequence": 8})


@pytest.fixture
def service() -> Iterator[Fake]:
    with Fake() as fake:
        thread = threading.Thread(target=fake.serve_forever, args=(0.02,))
        thread.start()
        yield fake
        fake.shutdown()
        thread.join()


def until(ask: Callable[[], Any], seconds: float = 10.0) -> Any:
    """What is asked for, once it is there."""
    end = time.monotonic() + seconds
    while not (found := ask()) and time.monotonic() < end:
        time.sleep(0.02)
    assert found
    return found


def opened(browser: Chrome, service: Addressed, ready: str = "true") -> Chrome:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(service.address)
    until(lambda: browser.execute_script("return document.body.dataset.ready") == ready)
    return browser


def text(browser: Chrome, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).innerText", selector))


PRESS = """
const all = [...document.querySelectorAll(arguments[0] + " button")].filter(it => it.checkVisibility());
const found = all.find(it => it.textContent === arguments[1]);
found?.click();
return found !== undefined;
"""


def press(browser: Chrome, selector: str, word: str) -> None:
    until(lambda: browser.execute_script(PRESS, selector, word))


def test_the_page_shows_servers_queue_and_jobs_and_a_script_in_a_name_stays_text(
    browser: Chrome, service: Fake
) -> None:
    opened(browser, service)
    assert "12 of 16 GPUs in use" in text(browser, "#facts") and "1 of the links down" in text(browser, "#facts")
    assert text(browser, "#servers tbody tr:last-child").split("\t") == ["s3", "down", "4", "0", "", "rack1", "v100"]
    assert HOSTILE[:-1] + "\\u202e" in text(browser, "#queue tbody tr")
    until(lambda: "in 20 min" in text(browser, "#queue tbody tr"))
    assert browser.execute_script("return document.title") == "cluster"
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.get_log("browser") == []


def test_a_click_tells_the_story_of_a_job_and_what_may_be_done(browser: Chrome, service: Fake) -> None:
    opened(browser, service)
    browser.find_element("css selector", "#queue tbody button").click()
    until(lambda: "Expected start: in 20 min" in text(browser, "#job"))
    assert "submit\tann\t\ts0/0\t" in text(browser, "#story") and "it waits for 4 GPUs. Of 16 GPUs." in text(
        browser, "#job"
    )
    press(browser, "#job", "Hold")
    until(lambda: service.events == [{"event": "held", "job": HOSTILE}])
    until(lambda: text(browser, "#acts"))
    press(browser, "#job", "Cancel")
    press(browser, "#job", "Cancel it: its progress is lost")
    until(lambda: service.events[1:] == [{"event": "cancel", "job": HOSTILE}])
    browser.execute_script("openJob('job1')")
    until(lambda: "running" in text(browser, "#job-facts"))
    press(browser, "#job", "Cancel")
    press(browser, "#job", "Cancel it: its progress is lost")
    until(lambda: "$.job: <img" in text(browser, "#job-wrong"))
    assert browser.execute_script("return document.title") == "cluster"


def test_without_a_role_nothing_is_offered_and_a_token_is_asked_for_once(browser: Chrome, service: Fake) -> None:
    service.token, service.role = "a token of many letters", "read"
    opened(browser, service, "token")
    assert text(browser, "#facts") == ""
    browser.find_element("id", "token").send_keys("a wrong one\n")
    until(lambda: "does not know" in text(browser, "#sign-wrong"))
    browser.find_element("id", "token").send_keys(service.token + "\n")
    until(lambda: "GPUs in use" in text(browser, "#facts"))
    assert not browser.find_element("id", "submitting").is_displayed()
    browser.find_element("css selector", "#queue tbody button").click()
    until(lambda: "submit" in text(browser, "#story"))
    assert text(browser, "#acts") == ""
    assert browser.execute_script("return [sessionStorage.token, localStorage.length, document.cookie]") == [
        service.token,
        0,
        "",
    ]
    browser.get(service.address)
    until(lambda: "GPUs in use" in text(browser, "#facts"))
    browser.execute_script("sessionStorage.clear()")


def test_in_a_narrow_window_tables_scroll_and_an_edge_shows_it(browser: Chrome, service: Fake) -> None:
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened(browser, service)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        tables = browser.execute_script(
            "return [...document.querySelectorAll('#queue, #running, #servers')].map(box => {"
            " const it = box.querySelector('.table'), { overflowX, backgroundAttachment } = getComputedStyle(it);"
            " return [it.scrollWidth > it.clientWidth, overflowX, backgroundAttachment]; })"
        )
        assert tables == [[True, "auto", "local, local, scroll, scroll"]] * 3
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_change_is_shown_when_it_is_told(browser: Chrome, service: Fake) -> None:
    opened(browser, service)
    browser.execute_script("poll = null; clearTimeout(0)")
    service.view = {**view(), "sequence": 8, "time_us": NOW + 1, "policy": "las"}
    service.changed.set()
    until(lambda: "policy las" in text(browser, "#about"), 2.0)
    assert browser.execute_script("return past.time_us.length") == 3  # the last of 10 s


def test_keys_go_from_gpu_to_gpu_and_open_a_job(browser: Chrome, service: Fake) -> None:
    opened(browser, service)
    canvas = browser.find_element("id", "map")
    canvas.send_keys("\ue015\ue014")  # down, right
    assert text(browser, "#said") == "s1/1 (v100, rack rack0): up, job job1 (bert, 4 GPUs)"
    canvas.send_keys("\ue010")  # end
    assert text(browser, "#said") == "s3/3 (v100, rack rack1): down, idle"
    canvas.send_keys("\ue011\ue007")  # home, enter
    until(lambda: text(browser, "#job-name") == "job0")
    assert browser.execute_script("return document.getElementById('job').contains(document.activeElement)")


@pytest.mark.parametrize("dialog", ["", "job", "submit", "sign"])
def test_an_audit_of_accessibility_finds_nothing(browser: Chrome, service: Fake, dialog: str) -> None:
    pytest.importorskip("axe_core_python", reason="axe-core-python is not installed (extra dev)")
    opened(browser, service)
    if dialog == "job":
        browser.execute_script("openJob('job1')")
        until(lambda: text(browser, "#acts"))
    elif dialog:
        browser.execute_script(f"document.getElementById('{dialog}').showModal()")
    browser.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script("axe.run().then(arguments[0])")
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found["violations"]] == []
    assert len(found["passes"]) > 20


def test_ten_thousand_gpus_are_drawn_and_found(browser: Chrome, service: Fake) -> None:
    service.view = view(servers=1250, gpus=8, per_rack=16)
    opened(browser, service)
    assert "9,992 of 10,000 GPUs in use" in text(browser, "#facts")
    assert text(browser, "#servers .line").startswith("‹\n›") or "1 to 25 of 1,250" in text(browser, "#servers .line")
    places = browser.execute_script("return plan.places.map(([x, y], k) => gpuAt(x + 1, y + 1) === 8 * k)")
    assert len(places) == 1250 and all(places)
    browser.find_element("css selector", "#servers input").send_keys("s1249")
    assert text(browser, "#servers tbody").split("\t")[:4] == ["s1249", "down", "8", "0"]


class Real(NamedTuple):
    """A service, and where it listens."""

    service: Service
    address: str


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Real]:
    """A service over two servers of four GPUs, as the command starts it."""
    import uvicorn

    from jigsaw_opt.serving.application import ServedPaths

    found = started_by_hand(tmp_path, clock=lambda: time.time_ns() // 1000)
    application = ServedPaths(found)
    server = uvicorn.Server(uvicorn.Config(application.app, log_config=None, timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found.start()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield Real(found, f"http://127.0.0.1:{listening.getsockname()[1]}/")
        server.should_exit = True
        application.end()
        thread.join()
        found.stop()


def test_a_service_shows_its_page_which_shows_what_happens(browser: Chrome, real: Real) -> None:
    def take(*events: dict[str, Any]) -> None:
        real.service.post(EventRequest(events)).result(10)

    take(submit(HOSTILE), submit("b", 3), submit("c", 4))
    opened(browser, real)
    until(lambda: "7 of 8 GPUs in use" in text(browser, "#facts"))
    assert "It waits for 4 GPUs, and 1 GPU is free." in text(browser, "#queue tbody")
    browser.find_element("css selector", "#queue tbody button").click()
    until(lambda: "submit" in text(browser, "#story") and "Expected start: in " in text(browser, "#job-start"))
    press(browser, "#job", "Hold")
    until(lambda: "Release" in text(browser, "#acts"))
    assert real.service.board.jobs[real.service.board.numbers["c"]].held
    press(browser, "#job", "Release")
    until(lambda: "Hold" in text(browser, "#acts"))
    take({"event": "finish", "job": HOSTILE})
    until(lambda: "running on s0/0" in text(browser, "#job-facts"))
    press(browser, "#job", "Cancel")
    press(browser, "#job", "Cancel it: its progress is lost")
    until(lambda: "has ended" in text(browser, "#job-facts") and text(browser, "#acts") == "")
    press(browser, "#job", "Close")
    until(lambda: "3 of 8 GPUs in use" in text(browser, "#facts"))
    press(browser, "header", "Submit a job")
    for name, value in {"name": "d", "model": "m"}.items():
        browser.find_element("css selector", f"#form [name={name}]").send_keys(value)
    press(browser, "#form", "What would it change?")
    until(lambda: "d would start on " in text(browser, "#tried"))
    press(browser, "#form", "Submit")
    until(lambda: "4 of 8 GPUs in use" in text(browser, "#facts"))
    press(browser, "#form", "Submit")
    until(lambda: "there is a job 'd' already" in text(browser, "#submit-wrong"))
    told = [entry["message"] for entry in browser.get_log("browser")]
    assert [text for text in told if "a status of 409" not in text and "a status of 422" not in text] == []
