"""What the domains of environments share: agent and program, judging by returns, exporting, drawing.

environments (compiled, or pools on the host) + algorithm ─► agent ─► program ─► a stage over all trials
when it has trained: greedy, sampled and random policy on the same fixed episodes, beside fixed rules
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from proxima.build import algorithm, domain_of
from proxima.core.algorithm import Problem
from proxima.core.network import NetworkSpec
from proxima.core.seeds import trial_seeds
from proxima.core.spaces import Fields, ObservationSpace, Space, is_discrete, zeros
from proxima.core.types import Agent, Env, PyTree, TrainState, View
from proxima.domains.domain import (
    Added,
    Closing,
    Facts,
    Overview,
    Planned,
    Prepared,
    Trainable,
    Trained,
    Verdict,
)
from proxima.report import plots
from proxima.run.results import Episodes, Outcome, Summary, TrialResult, described
from proxima.scenario.tree import EnvironmentScenario, network
from proxima.track.registry import Export, export_program, write_policy
from proxima.train import checkpoint
from proxima.train.compiled.chunk import DATA, Layout
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import compiled_program
from proxima.train.devices import plan_layout
from proxima.train.host.program import Pools, host_program
from proxima.train.program import Evaluation, Policy, Program, Recording
from proxima.train.reinforcement import Settings, reinforcement_stage
from proxima.train.stage import Row

METRIC = "episode return (undiscounted)"
# The closing evaluations by the name that results give them, and the policy of each.
CLOSING_POLICIES: dict[str, Policy] = {
    "evaluation": "greedy",
    "sampled": "sampled",
    "random": "random",
}
HOST_PARTS = ("env", "act", "learn")  # what programs over host environments time themselves

Judge = Callable[[Trained, list[Outcome]], Verdict]  # adds what the domain knows to the outcomes
Draw = Callable[[Trained, int, Outcome], None]
Film = Callable[
    [Path, str, Recording], bool
]  # path, environment, episode → whether it can be drawn


class Built(NamedTuple):
    """A scenario's agent and its program."""

    agent: Agent
    program: Program
    observation_space: ObservationSpace
    action_space: Space
    layout: Layout
    # How the environment's own observations and actions differ from the policy's; empty: not at all.
    space_notes: Callable[[], Mapping[str, Any]] = dict


class Rules(NamedTuple):
    """What a policy is compared with on its evaluation episodes."""

    # Fixed rules, oracles among them: episodes → what the rule gets on those of evaluation.
    baselines: Mapping[str, Callable[[int], Evaluation]] = {}
    # Every trial's scores in the problem's own terms, (trials,), from its evaluation and the baselines'.
    score: Callable[[Evaluation, Mapping[str, Evaluation]], Mapping[str, Any]] | None = None


NO_RULES = Rules()


def prepare_host(scenario: EnvironmentScenario) -> None:
    """Ask for as many devices as the trials can use."""
    from proxima.train.devices import prepare_host

    prepare_host(scenario.trials, scenario.training.threads)


def rollout_steps(scenario: Any) -> int:
    """Steps of each environment per update."""
    config = scenario.algorithm
    return algorithm(config.name).rollout_steps(config, scenario.env.num_envs)


def total_updates(scenario: Any) -> int | None:
    """Updates in the step budget, None where there is none."""
    if scenario.training.max_steps is None:
        return None
    return -(-scenario.training.max_steps // (rollout_steps(scenario) * scenario.env.num_envs))


def compiled(
    scenario: Any,
    env: Env,
    evaluation_env: Env | None = None,
    closing_env: Env | None = None,
    foresees: bool = False,
    sample_cost: int = 1,
) -> Built:
    """The agent on a compiled environment; evaluation may have environments of its own.

    `sample_cost` says how many samples of a small perceptron one of these nets costs.
    """
    layout = _layout(scenario, sample_cost)
    axis = DATA if layout.data_devices > 1 else None
    problem = _problem(scenario, env.observation_space, env.action_space)
    problem = problem._replace(axis=axis, env=env, foresees=foresees)
    found = algorithm(scenario.algorithm.name)
    agent = found.make(scenario.algorithm, problem)
    collector = Collector(env, scenario.env.num_envs, rollout_steps(scenario), axis)
    program = compiled_program(
        agent, collector, layout, scenario.seed, evaluation_env, closing_env, found.acting
    )
    return Built(agent, program, env.observation_space, env.action_space, layout)


def hosted(scenario: Any, spaces: tuple[ObservationSpace, Space], pools: Pools) -> Built:
    """The agent on environments that step on the host."""
    agent = algorithm(scenario.algorithm.name).make(scenario.algorithm, _problem(scenario, *spaces))
    program = host_program(
        agent,
        pools,
        trials=scenario.trials,
        num_envs=scenario.env.num_envs,
        steps=rollout_steps(scenario),
        experiment_seed=scenario.seed,
    )
    return Built(agent, program, *spaces, Layout(1, 1))


def _problem(scenario: Any, observation_space: ObservationSpace, action_space: Space) -> Problem:
    config = scenario.network
    return Problem(
        env_name=scenario.env.name,
        backend=scenario.env.backend,
        observation_space=observation_space,
        action_space=action_space,
        num_envs=scenario.env.num_envs,
        network=NetworkSpec(network(domain_of(scenario), config.kind), config),
        total_updates=total_updates(scenario),
    )


def _layout(scenario: Any, sample_cost: int) -> Layout:
    config, devices = scenario.algorithm, len(jax.devices())
    share = algorithm(config.name).shared_samples(config)
    if share % devices == 0:
        share *= sample_cost  # so dear a sample is worth a device's waiting sooner
    return plan_layout(scenario.trials, scenario.env.num_envs, share, devices)


def settings(scenario: EnvironmentScenario) -> Settings:
    """What says how the scenario's trials train."""
    return Settings(
        scenario.training, scenario.evaluation, scenario.convergence, scenario.checkpoint
    )


def prepared(
    scenario: Any,
    built: Built,
    *,
    rules: Rules = NO_RULES,
    judge: Judge = lambda trained, outcomes: Verdict(outcomes),
    draw: Draw | None = None,
    film: Film = lambda path, name, recording: False,
    facts: Facts | None = None,
    summarize: Callable[..., Added] = lambda results, verdicts: Added(METRIC),
    artifacts: Sequence[str] = (),
    final_metrics: Callable[[TrialResult], Mapping[str, float]] = lambda trial: {},
) -> Prepared:
    """One stage over all trials, judged by returns and by what the domain adds."""
    trials = tuple(range(scenario.trials))
    seeds = trial_seeds(scenario.seed, scenario.trials)
    references = _References(scenario, rules)

    def judged(trained: Trained) -> Verdict:
        return judge(trained, _outcomes(scenario, built, rules, references, trained))

    def make(directory: Callable[[int], Path]) -> Trainable:
        return Trainable(
            stage=reinforcement_stage(built.program, seeds, settings(scenario), built.layout),
            judge=judged,
            export=partial(export, scenario, built),
            draw=partial(draw_trial, scenario, built, draw, film),
            profile=partial(phases, built.program),
            measure=partial(measure, built.program),
            record=lambda state: built.program.record(state.learner),
        )

    def added(results: Sequence[TrialResult], verdicts: Sequence[Any]) -> Added:
        target = scenario.convergence.target_reward
        return summarize(results, verdicts)._replace(target=target)

    return Prepared(
        algorithm=scenario.algorithm.name,
        stages=[Planned("", trials, make)],
        summarize=added,
        final_metrics=final_metrics,
        facts=facts,
        references=lambda: {
            name: described(each.returns[0], each.lengths[0]) for name, each in references().items()
        },
        artifacts=("policy", "film.gif", *artifacts),
        close=built.program.close,
    )


class _References:
    """What the fixed rules get on the closing episodes; each plays once."""

    def __init__(self, scenario: Any, rules: Rules):
        self._episodes, self._rules = scenario.evaluation.final_episodes, rules
        self._played: dict[str, Evaluation] | None = None

    def __call__(self) -> dict[str, Evaluation]:
        if self._played is None:
            plays = self._rules.baselines.items()
            self._played = {name: play(self._episodes) for name, play in plays}
        return self._played


def _outcomes(
    scenario: Any, built: Built, rules: Rules, references: _References, trained: Trained
) -> list[Outcome]:
    """Greedy, sampled and random policy on the same fixed episodes, beside the rules."""
    states = built.program.place(checkpoint.stack_trials(trained.lanes))
    episodes = scenario.evaluation.final_episodes
    played = {
        name: built.program.examine(states.learner, policy, episodes)
        for name, policy in CLOSING_POLICIES.items()
    }
    beside = references()
    means = {name: float(each.returns.mean()) for name, each in beside.items()}
    scores = {} if rules.score is None else rules.score(played["evaluation"], beside)
    outcomes = []
    for lane in range(len(trained.lanes)):
        episodes_of = {
            name: described(each.returns[lane], each.lengths[lane]) for name, each in played.items()
        }
        outcomes.append(
            Outcome(
                **episodes_of,
                baselines={"random": episodes_of["random"].return_mean, **means},
                scores={name: _finite(values[lane]) for name, values in scores.items()},
            )
        )
    return outcomes


def measure(program: Program, state: TrainState, episodes: int) -> dict[str, Episodes]:
    """One trial's greedy, sampled and random policy on the fixed evaluation episodes."""
    learners = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf)[None], state.learner)
    played = {
        name: program.examine(learners, policy, episodes)
        for name, policy in CLOSING_POLICIES.items()
    }
    return {name: described(each.returns[0], each.lengths[0]) for name, each in played.items()}


def _finite(value: Any) -> float | None:
    """A score may not exist: of paths through mazes, when no maze was solved."""
    return float(value) if np.isfinite(value) else None


def export(scenario: Any, built: Built, trained: Trained) -> None:
    """Every trial's policy as weights and a program that needs nothing of ours; traced once for all."""
    description = describe_policy(scenario, built)
    made: Export | None = None
    for lane, (state, directory) in enumerate(zip(trained.lanes, trained.trials, strict=True)):
        if (directory / "policy").exists():  # a finish that was killed had come so far
            continue
        function, weights = policy_function(built.agent, state.learner)
        if made is None:
            made = export_program(function, weights, zeros(built.observation_space))
        write_policy(made, weights, description | {"trial": lane}, directory / "policy")


def policy_function(
    agent: Agent, learner: PyTree
) -> tuple[Callable[[dict[str, Any], Any], Any], dict[str, Any]]:
    """The greedy policy as f(weights by name, observations) → actions, and the weights."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(agent.policy(learner))
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]

    def act(weights: dict[str, Any], observations: Any) -> Any:
        policy = jax.tree.unflatten(structure, [weights[name] for name in names])
        return agent.exploit(policy, View(observations))

    return act, {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)}


def describe_policy(scenario: Any, built: Built) -> dict[str, Any]:
    """What policy.json says of an exported policy besides its weights."""
    notes = built.space_notes()
    return ({"translation": dict(notes)} if notes else {}) | {
        "scenario": scenario.name,
        "algorithm": scenario.algorithm.name,
        "env": scenario.env.name,
        "observation_space": _described_space(built.observation_space),
        "action_space": _described_space(built.action_space),
        "network": {"kind": scenario.network.kind},
        # An algorithm of the user's own may have no such setting.
        "normalize_observations": asdict(scenario.algorithm).get("normalize_observations", False),
    }


def _described_space(space: ObservationSpace | Space) -> dict[str, Any]:
    if isinstance(space, Fields):
        return {name: part._asdict() for name, part in space.items()}
    return space._asdict()


def draw_trial(
    scenario: Any,
    built: Built,
    draw: Draw | None,
    film: Film,
    trained: Trained,
    lane: int,
    outcome: Outcome,
) -> None:
    """How a trial learnt, what it earns and does, and a film of its first episode."""
    folder = trained.trials[lane] / "plots"
    found = algorithm(scenario.algorithm.name)
    trained.paint(
        plots.learning_curve,
        folder / "learning_curve.png",
        trained.rows(lane),
        panels=[tuple(panel) for panel in found.panels],
        target=scenario.convergence.target_reward,
    )
    if draw is not None:
        draw(trained, lane, outcome)
        return
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


def phases(
    program: Program, states: TrainState, rows: Sequence[Row], updates: int
) -> dict[str, float]:
    """Seconds of the parts of an update: measured, or from what a program on the host says in every chunk."""
    if program.profile is not None:
        return program.profile(states)
    env, act, learn = (sum(row[f"time/{part}"] for row in rows) / updates for part in HOST_PARTS)
    return {
        "rollout": env + act,
        "env": env,
        "act": act,
        "learn": learn,
        "update": env + act + learn,
    }


def overview(scenario: Any) -> Overview:
    """A scenario in a line of the list."""
    steps, target = scenario.training.max_steps, scenario.convergence.target_reward
    return Overview(
        scenario.algorithm.name,
        f"{scenario.env.name} ({scenario.env.backend})",
        f"{steps:,}" if steps else "–",
        f"{target:g}" if target is not None else "–",
    )


def shown(value: float | None) -> str:
    """A return with as many digits as its size asks for: 493.6, but 0.0312."""
    if value is None:
        return "–"
    return f"{value:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"


def closing(summary: Summary, what: str = "Greedy return", beside: str = "") -> Closing:
    """The trials in a table, and the interval over them beside the random policy and fixed rules."""
    rows = [
        (
            str(result.trial),
            f"{result.environment_steps:,}",
            f"{result.episodes:,}",
            _spread(result.evaluation),
            _spread(result.sampled),
            f"solved at {result.converged_at_step:,}"
            if result.converged and result.converged_at_step is not None
            else STATES[result.stopped],
        )
        for result in summary.trials
    ]
    return Closing(
        title=f"{summary.scenario} · {summary.algorithm}",
        columns=("trial", "steps", "episodes", "greedy", "sampled", "state"),
        rows=rows,
        lines=_interval_lines(summary, what, beside),
    )


STATES = {
    "converged": "converged",
    "budget": "done",
    "nan": "NaN: stopped",
    "alarm": "alarm: stopped",
    "callback": "stopped",
}


def _spread(episodes: Episodes | None) -> str:
    return (
        "–" if episodes is None else f"{shown(episodes.return_mean)} ± {shown(episodes.return_std)}"
    )


def _interval_lines(summary: Summary, what: str, beside: str) -> list[str]:
    aggregate, random = summary.aggregate, summary.baselines["random"]
    if aggregate is None or aggregate.iqm is None:
        return ["No trial ended with a usable policy."]
    line = f"{what}, interquartile mean of {aggregate.n} trial(s): {shown(aggregate.iqm)}"
    if aggregate.low is not None:
        line += f"  (95 % interval {shown(aggregate.low)} … {shown(aggregate.high)})"
    line += f"; random policy {shown(random.iqm)}"
    for name in summary.references:
        line += f"; {name.replace('_', ' ')} {shown(summary.baselines[name].iqm)}"
    if summary.target_reward is not None:
        line += f"; target {summary.target_reward:g}"
    lines = [line + beside]
    for name, score in summary.scores.items():
        if score.iqm is None:
            continue
        text = f"{name.replace('_', ' ')}: {shown(score.iqm)}"
        if score.low is not None:
            text += f"  (95 % interval {shown(score.low)} … {shown(score.high)})"
        lines.append(text)
    return lines
