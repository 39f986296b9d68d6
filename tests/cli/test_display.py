"""What is shown of a run never ends it, slows it or changes it, whoever reads."""

import io
import os
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from rich.console import Console
from run_directories import summary_of, trial_result
from tiny import TINY, command, flags, read, run_process
from tracking import wait_until

from proxima import terminal
from proxima.cli.console import print_summary
from proxima.run.display import View
from proxima.run.results import Registered
from proxima.run.screen import live_display, shown_line
from proxima.scenario import load
from proxima.terminal import PLAIN, Output, ProgressLine, open_screen
from proxima.train.books import Book
from proxima.train.books import Progress as Done
from proxima.train.loop import Report
from proxima.train.stage import Schedule, Score

TINY_RUN = ["experiment", "--scenario", "cartpole", *flags(*TINY, "training.max_steps=640")]
LATEST = "logs/cartpole/latest"


def shell(workdir, line: str) -> subprocess.CompletedProcess:
    """A tiny run, PROXIMA in the line of a shell that fails if any part of a pipe does."""
    words = shlex.join(map(str, command(*TINY_RUN)))
    script = f"set -o pipefail; {line.replace('PROXIMA', words)}"
    return subprocess.run(
        ["bash", "-c", script], cwd=workdir, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    "line",
    [
        "PROXIMA | head -1",
        "PROXIMA | true",
        "PROXIMA > /dev/full",
        "PROXIMA >&-",
        "PROXIMA --json | true",
        "PROXIMA --json 2> /dev/full",
    ],
)
def test_a_run_whose_output_nobody_takes_succeeds(workdir, line):
    done = shell(workdir, line)
    assert done.returncode == 0, done
    assert done.stderr == "" or "--json" in line
    assert read(workdir / LATEST / "run.json")["status"] == "finished"
    assert (workdir / LATEST / "report.html").exists()


def test_an_error_keeps_its_code_where_it_cannot_be_said(workdir):
    words = shlex.join(map(str, command("experiment", "--scenario", "nothing")))
    done = subprocess.run(["bash", "-c", f"{words} 2> /dev/full"], cwd=workdir, timeout=300)
    assert done.returncode == 1


def full_pipe() -> tuple[int, int]:
    """A pipe that takes no more."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x")
    os.set_blocking(writing, True)
    return reading, writing


def test_a_run_whose_reader_sleeps_ends_all_the_same_and_its_results_wait(workdir):
    reading, writing = full_pipe()
    process = subprocess.Popen(command(*TINY_RUN), cwd=workdir, stdout=writing)
    os.close(writing)
    info = workdir / LATEST / "run.json"
    try:
        wait_until(lambda: info.exists() and read(info)["status"] == "finished", 200)
        with os.fdopen(reading) as output:
            text = output.read()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert "Results, plots and checkpoints:" in text
    assert "640 / 640 steps" not in text, "progress was not kept for a reader that slept"


def guarded(work) -> None:
    """Does the work in a thread, so that a test of what never blocks does not block itself."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive(), "it waits"


@pytest.mark.parametrize("terminal_like", [False, True])
def test_a_chatty_display_does_not_wait_for_its_reader(terminal_like):
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as stream:
        console = Console(file=stream, force_terminal=terminal_like, **PLAIN)
        display = live_display(console, load("cartpole"))

        def chat() -> None:
            for number in range(2000):
                display.say(f"{number} {'x' * 100}")
            display.say("y" * 100_000)
            display.close()

        guarded(chat)


def test_a_reader_that_keeps_up_gets_everything():
    reading, writing = os.pipe()
    read_back = []
    with os.fdopen(reading) as source, os.fdopen(writing, "w") as stream:
        output = Output(stream, waits=True)
        reader = threading.Thread(target=lambda: read_back.append(source.read()))
        reader.start()
        lines = [f"{number} {'é' * 100}\n" for number in range(3000)]
        for line in lines:
            output.write(line)
        stream.close()
        reader.join(60)
    assert read_back == ["".join(lines)]


def test_what_was_printed_before_comes_first():
    script = (
        "import sys; from proxima.terminal import Output; "
        "print('first'); Output(sys.stdout, waits=True).write('second\\n'); print('third')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["first", "second", "third"]


@pytest.mark.parametrize("waits", [False, True])
def test_streams_that_are_gone_closed_or_of_few_letters_raise_nothing(waits):
    Output(None, waits).write("text")
    closed = io.StringIO()
    closed.close()
    assert not Output(closed, waits).isatty()
    Output(closed, waits).write("text")
    reading, writing = os.pipe()
    os.close(reading)
    with suppress(BrokenPipeError), os.fdopen(writing, "w") as stream:
        Output(stream, waits).write("text")
    small = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Output(small, waits).write("a ━ b\n")


NAME = "[red]x[/] :smile:"


def scenario(name: str):
    return SimpleNamespace(name=name, trials=1)


def view(
    steps: int, name: str = "", unit: str = "steps", budget: int = 100, row=None, score=None
) -> View:
    """Where a stage of one trial stands."""
    book = Book(steps=steps, episodes=1, stopped=None if steps < budget else "budget")
    rows = [{"episode/return": 12.0} if row is None else row]
    scores = None if score is None else [Score(score, 1, {"eval/return_mean": score})]
    report = Report(Done(1, (book,)), rows, scores, 1.0, 0.0, [], False, None)
    figures = {"episode/return": "return", "eval/return_mean": "greedy"}
    schedule = Schedule(updates_per_chunk=1, max_steps=budget)
    stage = SimpleNamespace(trials=(0,), unit=unit, schedule=schedule, figures=figures)
    return View(name, stage, report, 1.0)


def test_names_that_look_like_markup_are_printed_as_they_are():
    text = io.StringIO()
    console = Console(file=text, width=200, **PLAIN)
    display = live_display(console, scenario(NAME))
    display.say(f"Saved in {NAME}")
    display.progress(view(100))
    display.progress(view(4, "sft", "updates", 4))
    display.close()
    print_summary(
        console,
        summary_of(
            SimpleNamespace(run_id="1", root=NAME),
            [trial_result(0)],
            scenario=NAME,
            registered=(Registered(name=NAME, version="1", uri=NAME),),
            tracking_error=NAME,
            paths={"run": NAME, "report": NAME},
        ),
    )
    lines = [line for line in text.getvalue().splitlines() if "x" in line and "index" not in line]
    assert sum(NAME in line for line in lines) == 8


def test_a_scenario_whose_name_looks_like_markup_runs(workdir):
    (workdir / "[red]x.yaml").write_text("env: {name: CartPole-v1}\n")
    settings = flags(*TINY, "training.max_steps=640")
    done = run_process(["experiment", "--config", "[red]x.yaml", *settings], workdir)
    assert done.code == 0, done.err
    assert "[red]x  100 %" in done.out and "[red]x · ppo" in done.out
    again = run_process(["resume", "[red]x"], workdir)
    assert again.code == 0 and "logs/[red]x/runs/" in again.out


def test_a_log_gets_a_line_per_tenth_without_control_characters():
    text = io.StringIO()
    display = live_display(Console(file=text, **PLAIN), scenario("name"))
    for steps in range(1, 101):
        display.progress(view(steps))
    display.close()
    lines = text.getvalue().splitlines()
    assert 10 <= len(lines) <= 12 and "100 / 100 steps" in lines[-1]
    assert "\x1b" not in text.getvalue() and "\r" not in text.getvalue()


def test_a_log_says_how_far_it_is_without_a_bar():
    text = io.StringIO()
    display = live_display(Console(file=text, **PLAIN), scenario("name"))
    display.progress(view(10, score=3.0))
    display.working("judging", 0, 1)
    for picture in range(7):
        display.working("drawing", picture, 7)
    display.close()
    display.working("judging", 0, 1)  # of the next stage
    first, *rest = text.getvalue().splitlines()
    assert first == "name   10 %  10 / 100 steps  10 steps/s  return 12.0  greedy 3  9 s left"
    assert rest == ["name  judging", "name  drawing", "name  judging"]


def test_figures_that_a_chunk_does_not_say_stay_as_they_were():
    text = io.StringIO()
    display = live_display(Console(file=text, **PLAIN), scenario("name"))
    display.progress(view(10, score=3.0))
    display.progress(view(30, row={}))
    display.progress(view(50, row={"episode/return": 20.0}))
    lines = text.getvalue().splitlines()
    assert "return 12.0  greedy 3 " in lines[1] and "return 20.0  greedy 3 " in lines[2]


def test_at_its_end_nothing_is_left_to_wait_for():
    text = io.StringIO()
    display = live_display(Console(file=text, **PLAIN), scenario("name"))
    display.progress(view(99))
    display.progress(view(100))
    nearly, done = text.getvalue().splitlines()
    assert nearly.startswith("name   99 %") and "1 s left" in nearly
    assert done.startswith("name  100 %") and "left" not in done


def test_a_run_is_as_far_as_the_trial_that_is_last():
    ahead, behind = Book(steps=100), Book(steps=60)
    stage, report = view(1).stage, view(1).report
    for books, fraction in {
        (ahead, behind): 0.6,
        (ahead, behind._replace(stopped="converged")): 1.0,
        (behind._replace(stopped="converged"),): 0.6,
    }.items():
        assert View("", stage, report._replace(progress=Done(1, books)), 1.0).fraction == fraction


@pytest.mark.parametrize("trials", [1, 5])
def test_lines_fit_a_terminal_of_80_columns(trials):
    """The bar shows how far it is also without colours."""
    seen: dict = {}
    shown = shown_line(
        view(123_456, budget=1_000_000, score=3.0, row={"episode/return": 493.6}),
        SimpleNamespace(name="mountain_car_continuous", trials=trials),
        seen,
    )
    assert len(shown.line.plain) <= 80 and len(shown.details.plain) <= 80
    assert "━━─" in shown.line.plain and "12 %" in shown.line.plain


def test_a_notebook_gets_one_output_that_is_replaced(monkeypatch):
    publisher = CapturingDisplayPublisher()
    shell = SimpleNamespace(display_pub=publisher, config={"IPKernelApp": {}})
    monkeypatch.setattr("IPython.core.interactiveshell.InteractiveShell._instance", shell)
    monkeypatch.setattr("IPython.core.interactiveshell.InteractiveShell.instance", lambda: shell)
    monkeypatch.setattr("IPython.core.interactiveshell.InteractiveShell.initialized", lambda: True)
    monkeypatch.setattr(terminal, "in_notebook", lambda: True)
    text = io.StringIO()
    display = live_display(Console(file=text, **PLAIN), scenario("name"))
    for steps in range(10, 100):
        display.progress(view(steps))
    display.say("a message")
    display.progress(view(100))
    display.working("drawing", 0, 1)
    display.close()
    assert text.getvalue() == "a message\n"
    first, *others = publisher.outputs
    assert not first["update"] and all(output["update"] for output in others)
    assert len({output["transient"]["display_id"] for output in publisher.outputs}) == 1
    assert len(others) < 50, "every chunk's line is sent"
    lines = [output["data"]["text/plain"] for output in publisher.outputs]
    assert "drawing" in lines[-2] and "100 %" in lines[-1]


def test_a_notebook_is_known_by_its_kernel(monkeypatch):
    assert not terminal.in_notebook()
    shells = {"kernel": {"IPKernelApp": {}}, "terminal": {"TerminalIPythonApp": {}}}
    for name, config in shells.items():
        shell = SimpleNamespace(config=config)
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda s=shell: s))
        assert terminal.in_notebook() == (name == "kernel")
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not terminal.in_notebook()


def test_a_terminal_redraws_its_lines():
    master, slave = os.openpty()
    os.set_blocking(master, False)
    shown = ""

    def is_shown(text: str) -> bool:
        nonlocal shown
        with suppress(BlockingIOError):
            shown += os.read(master, 65536).decode()
        return text in shown

    with os.fdopen(slave, "w") as stream:
        screen = open_screen(Console(file=stream, **PLAIN), "waiting")
        screen.show(ProgressLine("run", 0.5, False, "half way", terminal.Text("half way")))
        screen.show(ProgressLine("run", 1.0, False, "", terminal.Text("working"), is_busy=True))
        screen.say("a message")
        screen.close()
        wait_until(lambda: is_shown("a message"))
    os.close(master)
    assert "\x1b[" in shown
