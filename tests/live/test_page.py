"""The page in a browser: a real run's points appear, it is stopped and resumed; others are refused."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import browser

COMMAND = [sys.executable, "-c", "from proxima.cli import main; main()"]
SETTINGS = (
    *("env.num_envs=4", "network.hidden=[8]", "trials=2", "training.updates_per_chunk=1"),
    *("training.max_steps=400000", "training.max_episodes=null", "convergence.target_reward=null"),
    *("evaluation.eval_frequency=50", "evaluation.eval_episodes=4", "evaluation.film=false"),
    *("algorithm.batch_size=64", "algorithm.minibatch_size=32", "tracking.enabled=false"),
)
WINDOWS = {"desk": (1280, 900), "phone": (390, 844)}
SECONDS = 90_000  # milliseconds that a loaded machine may take to start a run


@contextmanager
def process(directory, *words, **options):
    environment = os.environ | {"NPROC": "1"}
    with subprocess.Popen(
        [*COMMAND, *words], cwd=directory, env=environment, start_new_session=True, **options
    ) as started:
        try:
            yield started
        finally:
            started.send_signal(signal.SIGKILL)


@contextmanager
def page_of(directory, *options):
    """The server, its address and its token."""
    with process(directory, "live", "--port", "0", *options, stdout=-1, text=True) as server:
        line = server.stdout.readline()
        port, token = re.search(r"127\.0\.0\.1:(\d+)/\?token=(\S+)", line).groups()
        wait_for(lambda: asked(int(port), "GET", "/api/runs", token=token) is not None)
        yield int(port), token


def wait_for(fact):
    for _ in range(900):
        try:
            if fact():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("waited in vain")


def asked(port, method, path, token=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {"X-Proxima-Token": token} if token else {}
    connection.request(method, path, headers=given | headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def settings():
    return [word for setting in SETTINGS for word in ("--set", setting)]


def status(root):
    return json.loads((root / "run.json").read_text())["status"]


def test_others_are_refused_and_read_only_changes_nothing(tmp_path):
    with page_of(tmp_path) as (port, token):
        ours = {"Origin": f"http://127.0.0.1:{port}"}
        stop = "/api/stop?id=a/runs/b"
        for method, path in (("GET", "/"), ("GET", "/api/runs"), ("POST", stop)):
            assert asked(port, method, path, **ours)[0] == 403
            assert asked(port, method, path, "wrong", **ours)[0] == 403
            assert asked(port, method, path, token, Origin="http://evil.example")[0] == 403
            assert asked(port, method, path, token, Host=f"evil.example:{port}")[0] == 403
        assert asked(port, "POST", stop, token)[0] == 403  # no Origin
        code, content = asked(port, "POST", stop, token, **ours)
        assert code == 409 and b"no such run" in content
        assert asked(port, "POST", "/api/stop?id=../../etc", token, **ours)[0] == 409
        assert asked(port, "GET", "/uPlot.js", token)[0] == 200
        assert asked(port, "GET", "/..%2fserver.py", token)[0] == 404
    with page_of(tmp_path, "--read-only") as (port, token):
        ours = {"Origin": f"http://127.0.0.1:{port}"}
        code, content = asked(port, "POST", stop, token, **ours)
        assert code == 403 and b"--read-only" in content
        assert asked(port, "GET", "/api/runs", token)[0] == 200


def test_a_run_is_watched_stopped_and_resumed(tmp_path):
    with (
        browser.started() as chromium,
        process(tmp_path, "experiment", "cartpole", *settings(), stdout=-3, stderr=-3) as run,
        page_of(tmp_path) as (port, token),
    ):
        width, height = WINDOWS["desk"]
        with chromium.new_context(viewport={"width": width, "height": height}) as context:
            page, faults = context.new_page(), []
            page.on("console", lambda message: faults.append(message.text))
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.goto(f"http://127.0.0.1:{port}/?token={token}")
            assert token not in page.url
            page.locator("#runs a").first.click(timeout=SECONDS)
            wait_for(lambda: points(page) >= 3)
            page.select_option("#metric", "train/entropy")
            before = last_step(page)
            wait_for(lambda: last_step(page) > before)
            (root,) = (tmp_path / "logs" / "cartpole" / "runs").iterdir()
            seen(page, tmp_path, faults)

            page.get_by_role("button", name="Stop and save").press("Enter")
            page.locator("#runs .stopped").wait_for(timeout=SECONDS)
            run.wait(60)
            assert status(root) == "interrupted"
            rows = (root / "trial_0" / "metrics.jsonl").read_text().count("\n")

            page.get_by_role("button", name="Resume").press("Enter")
            page.locator("#runs .running").wait_for(timeout=SECONDS)
            grown = root / "trial_0" / "metrics.jsonl"
            wait_for(lambda: grown.read_text().count("\n") > rows)
            page.get_by_role("button", name="Stop and save").press("Enter")
            wait_for(lambda: status(root) == "interrupted")
            assert faults == []


def points(page):
    return int(page.locator("#plot").get_attribute("data-points") or 0)


def last_step(page):
    return float(page.locator("#plot").get_attribute("data-last") or 0)


def seen(page, folder, faults):
    """The page fits its window, on a desk and on a phone, by day and by night."""
    for window, (width, height) in WINDOWS.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(1500)
            size = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
            assert size == [width, width], (window, scheme)
            assert page.locator("#plot canvas").count() == 1
            page.screenshot(path=folder / f"{window}_{scheme}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})
    assert faults == []
