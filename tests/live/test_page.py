"""The page in a browser: a real run's points appear, it is stopped and resumed; others are refused.

What runs have to show of their evaluations appears too, and none of it is taken for markup.
"""

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

from proxima.run.preview import write_preview
from proxima.train.stage import Chart, Preview

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


EVIL = "<script>document.title='hacked'</script><img src=x onerror=alert(1)>\ud83d"


def shown_run(folder, equity, step, word):
    """A run's directory as it is while it trains, with charts, and texts that look like markup."""
    root = folder / "logs" / EVIL[:8].strip("<") / "runs" / "x"
    trials = [root / f"trial_{trial}" for trial in range(2)]
    tokens = [{"action": word, "kl": 2.0}, {"action": " fine", "kl": -1.0, "advantage": 1.0}]
    after = {"text": word, "ended": False, "reward": 1.0, "tokens": tokens}
    for trial in trials:
        trial.mkdir(parents=True, exist_ok=True)
        row = {"step": step, "eval/return_mean": 1.0}
        (trial / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        lines = {"equity": [1.0, equity], EVIL: [1.0, 2.0]}
        chart = Chart(f"Equity {EVIL}", [0.0, 86_400.0], lines, x_is_time=True)
        write_preview(trial, step, Preview([chart], [{"prompt": EVIL, "after": after}]))
    (root / "scenario.yaml").write_text("seed: 3\n")
    (root / "run.json").write_text('{"status": "finished", "started": "2026", "trials": 2}')


def test_charts_and_texts_are_shown_and_what_looks_like_markup_stays_text(tmp_path):
    shown_run(tmp_path, 1.5, 10, EVIL)
    with browser.started() as chromium, page_of(tmp_path) as (port, token):
        width, height = WINDOWS["phone"]
        with chromium.new_context(viewport={"width": width, "height": height}) as context:
            page, faults = context.new_page(), []
            page.on("console", lambda message: faults.append(message.text))
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("dialog", lambda dialog: faults.append(dialog.message))
            page.goto(f"http://127.0.0.1:{port}/?token={token}")
            page.locator("#runs a").first.click(timeout=SECONDS)
            page.locator("#charts canvas").wait_for(timeout=SECONDS)
            assert page.locator("#charts h3").inner_text() == f"Equity {EVIL}"
            assert "equity 1.5" in page.locator("#charts .note").inner_text()
            assert "step 10." in page.locator("#charts .note").inner_text()
            assert page.locator(".given").inner_text() == EVIL
            assert page.locator(".token").first.inner_text() == EVIL
            assert page.locator("main script, main img").count() == 0
            assert page.title() == "Proxima: live"

            blue, orange = (painted(page, index) for index in range(2))
            assert blue.startswith("rgba(0, 114, 178") and orange.startswith("rgba(213, 94, 0")
            page.get_by_label("advantage").check()
            assert painted(page, 1).startswith("rgba(0, 114, 178")

            shown_run(tmp_path, 2.5, 20, "new")
            page.locator(".token", has_text="new").wait_for(timeout=SECONDS)
            assert page.get_by_label("advantage").is_checked(), "a choice stays"
            wait_for(lambda: "step 20." in page.locator("#charts .note").inner_text())
            assert "equity 2.5" in page.locator("#charts .note").inner_text()
            size = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
            assert size == [width, width]
            assert faults == []


def painted(page, index):
    script = "element => getComputedStyle(element).backgroundColor"
    return page.locator(".token").nth(index).evaluate(script)


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
