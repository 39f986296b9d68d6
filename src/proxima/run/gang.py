"""A run trained by a gang: process 0 leads it, with all its files; the others build its stages and follow.

    process 0   with leading(gang) as member: run_multiple_experiments(scenario, gang=member)
    others      follow_gang(gang)

The others need no files of the run: the scenario, what a resumed run goes on with and every step are sent.
"""

import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from proxima.build import domain_of, importable_directories, make_importable
from proxima.core.errors import ProximaError
from proxima.domains.domain import Domain, Planned, Prepared, Trainable, Trained, Verdict
from proxima.run.signals import interruptible
from proxima.scenario import Scenario, from_mapping, to_stored
from proxima.train.gang import (
    Gang,
    GangLost,
    Member,
    Message,
    end_lost,
    gang_of,
    keep_programs,
)
from proxima.train.together import follow, led, shared_bytes

__all__ = ["Gang", "GangLost", "Member", "follow_gang", "gang_of", "leading"]

SCENARIO, STAGE, END = "scenario", "stage", "end"  # messages besides those of a stage
SAME = ("proxima", "jax", "numpy")  # versions that all processes have in common


@contextmanager
def leading(gang: Gang | None) -> Iterator[Member | None]:
    """While open, this process leads its gang; then all leave, also where an error ends the run."""
    if gang is None:
        yield None
        return
    member = Member(gang)
    try:
        yield member
    except GangLost as error:
        end_lost(str(error))
    finally:
        dismiss(member)


def dismiss(member: Member) -> None:
    """Sends the others home, once: what is left to do, process 0 does alone."""
    if not member.has_left:
        member.send({"name": END})
        member.leave()


def announce(member: Member, scenario: Scenario) -> None:
    """Tells the others what is trained; they make it runnable as process 0 does."""
    check_domain(domain_of(scenario), scenario)
    member.send(
        {
            "name": SCENARIO,
            "scenario": to_stored(scenario),
            "directories": importable_directories(),
            "versions": _versions(),
        }
    )


def check_domain(domain: Domain, scenario: Scenario) -> None:
    """An error where the domain cannot train by a gang."""
    if not domain.gangs:
        raise ProximaError(
            f"--processes: {domain.name} trains in one process; leave --process-id, --processes and "
            "--coordinator out"
        )


def _versions() -> dict[str, str]:
    return {name: version(name) for name in SAME}


def led_by(member: Member, prepared: Prepared) -> Prepared:
    """The prepared scenario with stages that all processes train together."""
    facts = None if prepared.facts is None else dict(prepared.facts.noted)

    def make(index: int, planned: Planned, directory: Callable[[int], Path]) -> Trainable:
        member.remedy = _remedy(directory(planned.trials[0]).parent)
        made = _made_before(directory(planned.trials[0])) if index else {}
        sizes = {name: len(content) for name, content in made.items()}
        member.send(
            {
                "name": STAGE,
                "index": index,
                "facts": facts,
                "remedy": member.remedy,
                "files": sizes,
            }
        )
        member.wait_for_others()
        with member.explained():
            shared_bytes(b"".join(made.values()), sum(sizes.values()))
            trainable = planned.make(directory)

        def judge(trained: Trained) -> Verdict:
            if planned is prepared.stages[-1]:
                dismiss(member)
            return trainable.judge(trained)

        # parts of an update are measured by programs that only process 0 would run
        return trainable._replace(
            stage=led(trainable.stage, member), judge=judge, profile=lambda *_: None
        )

    stages = [
        planned._replace(make=partial(make, index, planned))
        for index, planned in enumerate(prepared.stages)
    ]
    return prepared._replace(stages=stages)


def _made_before(trial: Path) -> dict[str, bytes]:
    """What earlier stages left for later ones in a trial's directory: models, above all."""
    return {
        str(path.relative_to(trial)): path.read_bytes()
        for path in sorted(trial.rglob("*"))
        if path.is_file()
        and "checkpoints" not in path.parts
        and path.suffix not in (".jsonl", ".png", ".html", ".gif")
    }


def _put_down(trial: Path, sizes: Mapping[str, int], content: bytes) -> None:
    """The files of earlier stages, as process 0 has them, in a directory of this process's own."""
    for name, size in sizes.items():
        path = trial / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[:size])
        content = content[size:]


def _remedy(root: Path) -> str:
    """The command that goes on with a run, for every process of its gang."""
    output = root.parent.parent.parent
    where = (
        ""
        if output.resolve() == Path("logs").resolve()
        else f" --output {shlex.quote(str(output))}"
    )
    return (
        "to go on from the last checkpoint, start every process again with  proxima resume "
        f"{root.name}{where} --process-id I --processes N --coordinator HOST:PORT"
    )


def follow_gang(gang: Gang) -> None:
    """One of the processes that are not the first, from its start to the end of the run; it writes nothing.

    Who asks the run to stop asks process 0: a signal to this one is remembered until that says so, and
    only a second one ends it.
    """
    member = Member(gang)
    with interruptible():
        try:
            _follow(member)
        except GangLost as error:
            end_lost(str(error))
        except BaseException as error:
            member.complain(f"{type(error).__name__}: {error}" if _is_bug(error) else str(error))
            raise
    member.leave()


def _is_bug(error: BaseException) -> bool:
    return not isinstance(error, ProximaError)


def _follow(member: Member) -> None:
    """Builds what process 0 announces, and follows it through the stages."""
    message = member.receive()
    if message["name"] == END:
        return
    prepared = _prepare(message)
    try:
        message = member.receive()
        with tempfile.TemporaryDirectory(prefix="proxima-") as nowhere:
            while message["name"] == STAGE:
                message = _follow_stage(member, prepared, message, Path(nowhere))
    finally:
        prepared.close()


def _prepare(message: Message) -> Prepared:
    from proxima.train.devices import use_compilation_cache

    theirs, ours = message["versions"], _versions()
    if theirs != ours:
        raise ProximaError(
            f"this process has {_listed(ours)}, and process 0 has {_listed(theirs)}; install the same "
            "versions on every machine of the gang"
        )
    make_importable(Path.cwd(), *message["directories"])
    scenario = from_mapping(message["scenario"], "the scenario of process 0")
    domain = domain_of(scenario)
    domain.prepare_host(scenario)
    use_compilation_cache()
    keep_programs()
    return domain.prepare(scenario)


def _listed(versions: Any) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _follow_stage(member: Member, prepared: Prepared, message: Message, directory: Path) -> Message:
    """One stage; the message that came after it."""
    member.remedy = message["remedy"]
    if prepared.facts is not None and message["facts"] is not None:
        prepared.facts.check(message["facts"])  # an error where the data is another
    planned: Planned = prepared.stages[message["index"]]
    sizes = message["files"]
    member.be_ready()
    with member.explained():
        content = shared_bytes(b"", sum(sizes.values()))
        _put_down(directory / f"trial_{planned.trials[0]}", sizes, content)
        trainable = planned.make(lambda trial: directory / f"trial_{trial}")
    try:
        return follow(trainable.stage, member)
    finally:
        trainable.close()
