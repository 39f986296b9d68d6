"""Signals that ask a run to stop, while it trains and while it finishes: `resume` goes on from there."""

import os
import signal
import subprocess
import threading
import time

import pytest
from resume import Case, check_same, latest
from tiny import (
    BUDGET,
    TINY,
    command,
    count_rows,
    flags,
    read,
    run_process,
    stop_at_row,
    stop_when,
)
from tracking import wait_until

from proxima import resume_experiment
from proxima.run.display import silent
from proxima.run.signals import interruptible, raising

CASE = Case("cartpole", *TINY, "training.max_steps=4096", "seed=3", "checkpoint.frequency=7")
LATEST = "logs/cartpole/latest"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_stopped_while_training_a_run_goes_on_from_there(workdir, whole, number):
    stopped = stop_at_row(CASE.command(), workdir, f"{LATEST}/trial_0/metrics.jsonl", 20, number)
    assert stopped.code == 130, stopped
    assert "proxima resume" in stopped.out and "Traceback" not in stopped.err
    finish(workdir, whole)


@pytest.mark.parametrize("number", SIGNALS)
def test_stopped_while_finishing_a_run_is_finished_by_resume(workdir, whole, number):
    process = subprocess.Popen(
        command(*CASE.command()), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        results = workdir / LATEST / "trial_0" / "results.json"  # before plots, policy and page
        wait_until(lambda: results.exists() or process.poll() is not None, 200)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, (out, err)
    assert "proxima resume" in out and "Traceback" not in err
    finish(workdir, whole)


def finish(workdir, whole) -> None:
    run = latest(workdir, CASE)
    assert read(run / "run.json")["status"] == "interrupted"
    resume_experiment("cartpole", display=silent())
    check_same(run, whole(CASE))


SLOW = """
import time
from pathlib import Path
from gymnasium.envs.classic_control import CartPoleEnv

class Slow(CartPoleEnv):
    def step(self, action):
        while Path("slow").exists():
            Path("waiting").touch()
            time.sleep(0.05)
        return super().step(action)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_that_does_not_return_does_not_hold_a_signal_up(workdir, workers):
    """On the host a run ends within the chunk, and goes on from its last checkpoint."""
    (workdir / "slow.py").write_text(SLOW)
    case = Case(
        "cartpole_host",
        *(*BUDGET, "training.max_steps=640", "checkpoint.frequency=2", "trials=1"),
        *("env.backend=slow:Slow", f"env.workers={workers}"),
    )
    metrics = workdir / "logs" / case.name / "latest" / "trial_0" / "metrics.jsonl"
    slow, waiting = workdir / "slow", workdir / "waiting"

    def is_stuck() -> bool:
        if count_rows(metrics) >= 5:
            slow.touch()
        return waiting.exists()

    stopped = stop_when(case.command(), workdir, is_stuck, signal.SIGTERM)
    assert stopped.code == 130, stopped
    assert "proxima resume" in stopped.out and "Traceback" not in stopped.err
    run = latest(workdir, case)
    assert read(run / "run.json")["status"] == "interrupted"
    slow.unlink()
    resumed = run_process(["resume", case.name], workdir)
    assert resumed.code == 0, resumed.err
    whole = run_process([*case.command(), *flags("output_directory=whole")], workdir)
    assert whole.code == 0, whole.err
    check_same(run, (workdir / "whole" / case.name / "latest").resolve())


def test_a_signal_that_is_raised_at_once_is_remembered_too():
    with interruptible(at_once=True) as asked:
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)
        assert asked(), "whoever swallows it does not keep the run from stopping"


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0)  # Python handles it between two of its own steps


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_remembered_and_the_second_ends_at_once(number):
    with pytest.raises(KeyboardInterrupt), interruptible() as asked:
        assert not asked()
        send(number)
        assert asked()
        send(number)


@pytest.mark.parametrize("number", SIGNALS)
def test_outside_the_loop_every_signal_interrupts(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with raising():
        with interruptible() as asked:
            send(number)
            assert asked()
        with pytest.raises(KeyboardInterrupt):
            send(number)
    assert [signal.getsignal(each) for each in SIGNALS] == before


class Dropping:
    """Gets a signal while it is being destroyed, where Python drops what is raised."""

    def __del__(self) -> None:
        send(signal.SIGTERM)


def test_a_signal_that_python_dropped_comes_again():
    dropping = Dropping()
    with pytest.raises(KeyboardInterrupt), raising():
        del dropping
        threading.Event().wait(60)
        pytest.fail("it was lost")


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raising(), interruptible() as asked:
            send(signal.SIGHUP)
            assert not asked()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_signals_are_left_alone():
    handlers = []

    def work() -> None:
        with raising(), interruptible() as asked:
            handlers.append(signal.getsignal(signal.SIGTERM))
            assert not asked()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGTERM)]
