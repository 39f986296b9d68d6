"""What became of trials in environments: judged by returns beside fixed rules, exported, drawn, reported."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from proxima.build import algorithm
from proxima.core.spaces import ObservationSpace, Space, is_discrete
from proxima.core.types import Agent, PyTree, TrainState, View
from proxima.domains.domain import Closing, Overview, Trained
from proxima.domains.interface import Interface
from proxima.report import plots
from proxima.report.levels import level_words
from proxima.report.numbers import brief
from proxima.report.statistics import interval_words
from proxima.run.results import Aggregate, Episodes, Level, Outcome, Summary, described
from proxima.track.registry import Export, export_program, write_policy
from proxima.train import checkpoint
from proxima.train.curriculum import CurriculumConfig, named_levels
from proxima.train.devices import Layout
from proxima.train.program import Evaluation, Policy, Program, Recording
from proxima.train.stage import Row

# The closing evaluations by the name that results give them, and the policy of each.
CLOSING_POLICIES: dict[str, Policy] = {
    "evaluation": "greedy",
    "sampled": "sampled",
    "random": "random",
}
# What an exported policy is.
NET = "the greedy action of the trained net"
NET_ALONE = (
    "the greedy action of the trained net alone, without the search that it was trained with and that an "
    "evaluation may use: its returns may differ from those of the run"
)
HOST_PARTS = ("env", "act", "learn")  # what programs over host environments time themselves
STATES = {
    "converged": "converged",
    "budget": "done",
    "nan": "NaN: stopped",
    "alarm": "alarm: stopped",
    "callback": "stopped",
}

Draw = Callable[[Trained, int, Outcome], None]
# Path, environment, episode → whether it can be drawn.
Film = Callable[[Path, str, Recording], bool]


class Built(NamedTuple):
    """A scenario's agent and its program."""

    agent: Agent
    program: Program
    observation_space: ObservationSpace
    action_space: Space
    layout: Layout
    interface: Interface
    raw: Mapping[str, Any] | None = None  # what lies between raw input and observations
    own_raw: Sequence[
        Mapping[str, Any]
    ] = ()  # where trials differ in it: trial k has the one at k mod len
    # Of a gang, over all its processes; `program` is then this one's alone.
    training: Program | None = None


class Rules(NamedTuple):
    """What a policy is compared with on its evaluation episodes."""

    # Fixed rules, oracles among them: episodes → what the rule gets on those of evaluation.
    baselines: Mapping[str, Callable[[int], Evaluation]] = {}
    # Every trial's scores in the problem's own terms, (trials,), from its evaluation and the baselines'.
    score: Callable[[Evaluation, Mapping[str, Evaluation]], Mapping[str, Any]] = (
        lambda evaluation, baselines: {}
    )


def judge_lanes(
    built: Built,
    lanes: list[PyTree],
    episodes: int,
    rules: Rules,
    baselines: Mapping[str, Evaluation],
) -> list[Outcome]:
    """Every lane's greedy, sampled and random policy on the same fixed episodes, beside the baselines."""
    states = built.program.lay_out(checkpoint.stack_trials(lanes))
    played = _play_closing(built.program, states.learner, episodes)
    means = {name: float(evaluation.returns.mean()) for name, evaluation in baselines.items()}
    scores = rules.score(played["evaluation"], baselines)
    outcomes = []
    for lane in range(len(lanes)):
        closing = _described(played, lane)
        outcome = Outcome(
            evaluation=closing["evaluation"],
            sampled=closing["sampled"],
            random=closing["random"],
            baselines={"random": closing["random"].return_mean, **means},
            # A score may not exist: of paths through mazes, when no maze was solved.
            scores={
                name: float(values[lane]) if np.isfinite(values[lane]) else None
                for name, values in scores.items()
            },
        )
        outcomes.append(outcome)
    return outcomes


def judge_levels(
    built: Built, lanes: list[PyTree], episodes: int, curriculum: CurriculumConfig | None
) -> list[tuple[Level, ...]]:
    """What every lane's greedy policy earns on each level of its curriculum, beside the random policy."""
    examine = built.program.examine_level
    if curriculum is None or examine is None:
        return [()] * len(lanes)
    learners = built.program.lay_out(checkpoint.stack_trials(lanes)).learner
    by_lane: list[tuple[Level, ...]] = [()] * len(lanes)
    for index, (parameters, beyond) in enumerate(named_levels(curriculum)):
        greedy = examine(learners, "greedy", episodes, index).returns
        random = examine(learners, "random", episodes, index).returns
        for lane in range(len(lanes)):
            level = Level(
                parameters=parameters,
                beyond=beyond,
                return_mean=float(greedy[lane].mean()),
                return_std=float(greedy[lane].std()),
                random=float(random[lane].mean()),
                episodes=episodes,
            )
            by_lane[lane] = (*by_lane[lane], level)
    return by_lane


def measure(program: Program, state: TrainState, episodes: int) -> dict[str, Episodes]:
    """One trial's greedy, sampled and random policy on the fixed evaluation episodes."""
    learners = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf)[None], state.learner)
    return _described(_play_closing(program, learners, episodes), 0)


def _play_closing(program: Program, learners: PyTree, episodes: int) -> dict[str, Evaluation]:
    return {
        name: program.examine(learners, policy, episodes)
        for name, policy in CLOSING_POLICIES.items()
    }


def _described(played: Mapping[str, Evaluation], lane: int) -> dict[str, Episodes]:
    return {
        name: described(evaluation.returns[lane], evaluation.lengths[lane])
        for name, evaluation in played.items()
    }


def references(baselines: Mapping[str, Evaluation]) -> dict[str, Episodes]:
    """What the fixed rules got, as results hold it."""
    return _described(baselines, 0)


def phases(
    program: Program, states: TrainState, rows: Sequence[Row], updates: int
) -> dict[str, float]:
    """Seconds of the parts of an update: measured, or from what a program on the host says in every chunk."""
    if program.profile is not None:
        return program.profile(states)
    env, act, learn = (sum(row[f"time/{part}"] for row in rows) / updates for part in HOST_PARTS)
    parts = {"rollout": env + act, "env": env, "act": act, "learn": learn}
    return parts | {"update": env + act + learn}


def export(scenario: Any, built: Built, trained: Trained) -> None:
    """Every trial's policy as weights and a program that needs nothing of ours; traced once for all."""
    description = describe_policy(scenario, built)
    made: Export | None = None
    for lane, (state, directory) in enumerate(zip(trained.lanes, trained.trials, strict=True)):
        if (directory / "policy").exists():  # a finish that was killed had come so far
            continue
        function, weights = policy_function(built.agent, state.learner, built.interface)
        if made is None:
            made = export_program(function, weights, policy_inputs(built))
        chosen = checkpoint.judged(trained.folders[lane], scenario.evaluation.checkpoint)
        taken = {"trial": lane, "checkpoint": {"kind": chosen.kind, "step": chosen.step}}
        if built.own_raw:
            taken["raw"] = built.own_raw[lane % len(built.own_raw)]
        write_policy(made, weights, description | taken, directory / "policy")


def policy_function(
    agent: Agent, learner: PyTree, interface: Interface
) -> tuple[Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]], dict[str, Any]]:
    """The greedy policy as f(weights, inputs) → outputs, all by name, in the environment's own terms."""
    weights = by_name(agent.policy(learner))
    structure = jax.tree.structure(agent.policy(learner))
    start = agent.memory(1)

    def act(weights: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        policy = jax.tree.unflatten(structure, [weights[name] for name in names])
        observations = interface.encode(inputs["observation"], jax.numpy)
        remembered = inputs.get("memory", {})
        memory = jax.tree.unflatten(
            jax.tree.structure(start), [remembered[name] for name in by_name(start)]
        )
        with jax.enable_x64(False):  # as it was trained; only an environment's own may be wider
            acted = agent.exploit(policy, View(observations, memory=memory))
        outputs = {"action": interface.decode(acted.action, jax.numpy)}
        return outputs if start is None else outputs | {"memory": by_name(acted.memory)}

    names = list(weights)
    return act, weights


def by_name(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree by their paths in it."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def policy_inputs(built: Built) -> dict[str, Any]:
    """What goes into an exported policy, described as policy.json describes it."""
    inputs: dict[str, Any] = {"observation": built.interface.observation}
    memory = by_name(built.agent.memory(1))
    if not memory:
        return inputs
    fields = {
        name: {"shape": list(leaf.shape[1:]), "dtype": str(leaf.dtype)}
        for name, leaf in memory.items()
    }
    return inputs | {"memory": {"fields": fields}}


def describe_policy(scenario: Any, built: Built) -> dict[str, Any]:
    """What policy.json says of an exported policy besides its weights and its program."""
    searches = algorithm(scenario.algorithm.name).acting == "search"
    return {
        "scenario": scenario.name,
        "algorithm": scenario.algorithm.name,
        "env": scenario.env.name,
        "policy": NET_ALONE if searches else NET,
        **policy_inputs(built),
        "action": built.interface.action,
        "network": {"kind": scenario.network.kind},
        # An algorithm of the user's own may have no such setting.
        "normalize_observations": asdict(scenario.algorithm).get("normalize_observations", False),
        **({} if built.raw is None else {"raw": built.raw}),
    }


def draw_learning(scenario: Any, trained: Trained, lane: int) -> None:
    """How a trial learnt: its returns, and what its algorithm wants to be drawn."""
    trained.paint(
        plots.learning_curve,
        trained.trials[lane] / "plots" / "learning_curve.png",
        trained.rows(lane),
        panels=[
            *(tuple(panel) for panel in algorithm(scenario.algorithm.name).panels),
            ("curriculum/level", "level of the curriculum"),
        ],
        target=scenario.convergence.target_reward,
    )


def draw_episodes(
    scenario: Any, built: Built, film: Film, trained: Trained, lane: int, outcome: Outcome
) -> None:
    """What a trial earns and does, and a film of the first one's first episode."""
    folder = trained.trials[lane] / "plots"
    recording = built.program.record(trained.lanes[lane].learner)
    closing = (outcome.evaluation, outcome.sampled, outcome.random)
    trained.paint(plots.reward_plot, folder / "rewards.png", *closing)
    trained.paint(
        plots.action_plot,
        folder / "actions.png",
        recording.actions,
        recording.rewards,
        "discrete" if is_discrete(built.action_space) else "continuous",
    )
    if scenario.evaluation.film and lane == 0:
        trained.paint(film, trained.trials[lane] / "film.gif", scenario.env.name, recording)


def overview(scenario: Any) -> Overview:
    """A scenario in a line of the list."""
    steps, target = scenario.training.max_steps, scenario.convergence.target_reward
    return Overview(
        scenario.algorithm.name,
        f"{scenario.env.name} ({scenario.env.backend})",
        f"{steps:,} steps" if steps else "no limit of steps",
        f"{target:g}" if target is not None else "–",
    )


def closing(
    summary: Summary, what: str = "Greedy return", beside: str = "", one: str = "trial"
) -> Closing:
    """The trials in a table, and the interval over them beside the random policy and fixed rules.

    `one` is what the interval is over, where that is not single trials.
    """
    rows = [
        (
            str(trial.trial),
            f"{trial.environment_steps:,}",
            f"{trial.episodes:,}",
            _spread(trial.evaluation),
            _spread(trial.sampled),
            f"solved at {trial.converged_at_step:,}"
            if trial.converged and trial.converged_at_step is not None
            else STATES[trial.stopped],
        )
        for trial in summary.trials
    ]
    return Closing(
        title=f"{summary.scenario} · {summary.algorithm}",
        columns=("trial", "steps", "episodes", "greedy", "sampled", "state"),
        rows=rows,
        lines=_closing_lines(summary, what, beside, one),
    )


def _spread(episodes: Episodes | None) -> str:
    if episodes is None:
        return "–"
    return f"{brief(episodes.return_mean)} ± {brief(episodes.return_std)}"


def _with_interval(aggregate: Aggregate) -> str:
    words = interval_words(aggregate.n)
    interval = f"  ({words} {brief(aggregate.low)} … {brief(aggregate.high)})"
    return brief(aggregate.iqm) + ("" if aggregate.low is None else interval)


def _closing_lines(summary: Summary, what: str, beside: str, one: str) -> list[str]:
    aggregate = summary.aggregate
    if aggregate is None or aggregate.iqm is None:
        return ["No trial ended with a usable policy."]
    line = f"{what}, interquartile mean of {aggregate.n} {one}(s): {_with_interval(aggregate)}"
    line += f"; random policy {brief(summary.baselines['random'].iqm)}"
    for name in summary.references:
        line += f"; {name.replace('_', ' ')} {brief(summary.baselines[name].iqm)}"
    if summary.target_reward is not None:
        line += f"; target {summary.target_reward:g}"
    return [line + beside, *_level_lines(summary)] + [
        f"{name.replace('_', ' ')}: {_with_interval(score)}"
        for name, score in summary.scores.items()
        if score.iqm is not None
    ]


def _level_lines(summary: Summary) -> list[str]:
    """The levels of a curriculum in a sentence, with what they are like beyond those that were trained on."""
    parts = {"Trained levels": False, "Beyond them": True}
    sentences = []
    for words, beyond in parts.items():
        levels = [level for level in summary.levels if level.beyond == beyond]
        returns = [
            f"{level_words(level.parameters)}: {brief(level.returns.iqm)} "
            f"(random {brief(level.random.iqm)})"
            for level in levels
        ]
        if returns:
            sentences.append(f"{words}, greedy return: {'; '.join(returns)}")
    return sentences
