"""What the domains of environments share: agent, program, and one stage over all trials.

environments (compiled, or pools on the host) + algorithm ─► agent ─► program ─► a stage over all trials
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from proxima.build import ALGORITHMS, algorithm, domain_of
from proxima.core.algorithm import Problem
from proxima.core.errors import ProximaError
from proxima.core.network import NetworkSpec
from proxima.core.seeds import trial_seeds
from proxima.core.spaces import ObservationSpace, Space, flat_size
from proxima.core.types import Agent, Env, PyTree, TrainState
from proxima.domains import judging
from proxima.domains.curriculum import course, leveled
from proxima.domains.domain import Added, Facts, Planned, Prepared, Trainable, Trained, Verdict
from proxima.domains.interface import Interface, interface_of
from proxima.domains.judging import Built, Draw, Film, Rules
from proxima.run.results import Outcome, TrialResult
from proxima.scenario.tree import EnvironmentScenario, network
from proxima.scenario.words import either
from proxima.train import checkpoint
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import Settings as Compiled
from proxima.train.compiled.program import compiled_program
from proxima.train.devices import DATA, Layout, plan_layout, process_count
from proxima.train.host.program import Pools, host_program
from proxima.train.memory import Need, check_memory, tree_bytes
from proxima.train.previews import MakePreview, with_previews
from proxima.train.reinforcement import Settings, blocks_of, reinforcement_stage
from proxima.train.stage import Stage
from proxima.train.together import gathered


class OwnEnvs(NamedTuple):
    """What trials do not share of their environments, trials first; None where they share it."""

    training: Env
    evaluation: Env
    closing: Env


METRIC = "episode return (undiscounted)"

Judge = Callable[[Trained, list[Outcome]], Verdict]  # adds what the domain knows to the outcomes


def prepare_host(scenario: EnvironmentScenario) -> None:
    """Ask for as many devices as the trials can use."""
    from proxima.train.devices import ask_for_devices, prepare_host

    searches = algorithm(scenario.algorithm.name).acting == "search"
    alone = (
        not searches
        and _network(scenario).small
        and _layout(scenario, 1, os.cpu_count() or 1) == Layout(1, 1)
    )
    if scenario.training.trials_per_block is not None:
        ask_for_devices(1, scenario.training.threads)  # as on every worker of a cluster
        return
    prepare_host(scenario.trials, scenario.training.threads, alone)


def rollout_steps(scenario: Any) -> int:
    """Steps of each environment per update."""
    config = scenario.algorithm
    return algorithm(config.name).rollout_steps(config, scenario.env.num_envs)


def compiled(
    scenario: Any,
    env: Env,
    evaluation_env: Env | None = None,
    closing_env: Env | None = None,
    foresees: bool = False,
    sample_cost: int = 1,
    own: OwnEnvs | None = None,
) -> Built:
    """The agent on a compiled environment; evaluation may have environments of its own.

    `own` has what trials have of their own in these environments.
    `sample_cost` says how many samples of a small perceptron one of these nets costs.
    """
    if scenario.training.policy_lag:
        raise ProximaError(
            f"training.policy_lag: {scenario.training.policy_lag}, and {scenario.env.name} on "
            f"{scenario.env.backend} is compiled into the training program, in which nothing waits for "
            "environments; set it to 0"
        )
    curriculum, followed = scenario.curriculum, None
    if curriculum is not None:
        evaluation_env, closing_env = evaluation_env or env, closing_env or evaluation_env or env
        env, evaluation_env, closing_env = (
            leveled(curriculum, each, scenario.env.name)
            for each in (env, evaluation_env, closing_env)
        )
        steps = rollout_steps(scenario) * scenario.env.num_envs
        followed = course(curriculum, scenario.training.max_steps, steps)
    problem = _problem(scenario, env.observation_space, env.action_space)
    in_gang = process_count() > 1
    layout = (
        _gang_layout(scenario) if in_gang else _layout(scenario, sample_cost, len(jax.devices()))
    )
    axis = DATA if layout.data_devices > 1 else None
    problem = problem._replace(axis=axis, env=env, foresees=foresees)
    chosen = algorithm(scenario.algorithm.name)
    agent = chosen.make(scenario.algorithm, problem)
    collector = Collector(env, scenario.env.num_envs, rollout_steps(scenario), axis, followed)
    program_on = partial(
        compiled_program,
        agent,
        collector,
        experiment_seed=scenario.seed,
        evaluation_env=evaluation_env,
        closing_env=closing_env,
        acting=chosen.acting,
        remake=partial(_remade, scenario, problem),
        own=None if own is None else _own_settings(agent, collector, own),
    )
    spaces = env.observation_space, env.action_space
    if in_gang:  # judged and exported by process 0 alone, whose devices come first
        alone, training = program_on(layout=Layout(1, 1)), program_on(layout=layout)
        return Built(agent, alone, *spaces, layout, interface_of(*spaces), training=training)
    return Built(agent, program_on(layout=layout), *spaces, layout, interface_of(*spaces))


def _own_settings(agent: Agent, collector: Collector, own: OwnEnvs) -> Compiled:
    """Environments of the trials' own in an agent and a collector that all share."""
    shared_agent, shared_collector = jax.tree.map(lambda _: None, (agent, collector))
    mine = replace(shared_collector, env=own.training)
    return Compiled(shared_agent, mine, own.evaluation, own.closing)


def hosted(
    scenario: Any, spaces: tuple[ObservationSpace, Space], pools: Pools, interface: Interface
) -> Built:
    """The agent on environments that step on the host."""
    if scenario.curriculum is not None:
        raise ProximaError(
            f"curriculum: is for compiled environments, and {scenario.env.name} on {scenario.env.backend} "
            "steps on the host; use env.backend: gymnax, or an environment of your own in JAX"
        )
    if process_count() > 1:
        raise ProximaError(
            f"--processes: a gang trains compiled environments, and {scenario.env.name} on "
            f"{scenario.env.backend} steps on the host; leave the gang's options out to train in one process"
        )
    problem = _problem(scenario, *spaces)
    _check_lag(scenario)
    agent = algorithm(scenario.algorithm.name).make(scenario.algorithm, problem)
    program = host_program(
        agent,
        pools,
        trials=side_by_side(scenario),
        num_envs=scenario.env.num_envs,
        steps=rollout_steps(scenario),
        experiment_seed=scenario.seed,
        remake=partial(_remade, scenario, problem),
        policy_lag=scenario.training.policy_lag,
    )
    return Built(agent, program, *spaces, Layout(1, 1), interface)


def _check_lag(scenario: Any) -> None:
    """An error where rollouts are to lag and the algorithm cannot learn from such."""
    lag, name = scenario.training.policy_lag, scenario.algorithm.name
    if lag and not algorithm(name).lags:
        able = [known for known in ALGORITHMS if algorithm(known).lags]
        raise ProximaError(
            f"training.policy_lag: {lag}, and {name} takes no rollouts of an earlier policy: its exploration "
            f"goes on from its last update; set it to 0, or algorithm.name to {either(able)}"
        )


def _remade(scenario: Any, problem: Problem, config: Any) -> tuple[Agent, int]:
    """The agent with another config of its algorithm, and the steps of its rollouts."""
    changed = replace(scenario, algorithm=config)
    steps, budget = rollout_steps(changed), scenario.training.max_steps
    updates = None if budget is None else -(-budget // (steps * scenario.env.num_envs))
    agent = algorithm(config.name).make(config, problem._replace(total_updates=updates))
    return agent, steps


def _check_memory(scenario: Any, built: Built) -> None:
    """An error where states, rollouts or evaluation are more than the machine can hold."""
    states = built.program.shapes(side_by_side(scenario))
    weights = jax.eval_shape(jax.vmap(built.agent.policy), states.learner)
    num_envs, evaluation = scenario.env.num_envs, scenario.evaluation
    rows = side_by_side(scenario) * num_envs * rollout_steps(scenario)
    row = flat_size(built.observation_space) + flat_size(built.action_space) + 1  # and its reward
    episodes = max(evaluation.eval_episodes, evaluation.final_episodes)
    # on the host a few environments play them one after the other
    lanes = episodes if built.program.exact_anywhere else 0
    has_replay = "buffer_size" in {field.name for field in fields(scenario.algorithm)}
    replay = "algorithm.buffer_size, " if has_replay else ""
    check_memory(
        [
            Need(
                "weights, their optimizer and the replay of all trials",
                f"{replay}network or trials",
                tree_bytes(states.learner),
            ),
            Need("gradients", "network or trials", tree_bytes(weights)),
            Need("environments", "env.num_envs or trials", tree_bytes(states.actors)),
            Need("a rollout", "algorithm.batch_size, env.num_envs or trials", 4 * rows * row),
            Need(
                "an evaluation",
                "evaluation.final_episodes, evaluation.eval_episodes or trials",
                tree_bytes(states.actors) // num_envs * lanes,
            ),
        ]
    )


def _problem(scenario: Any, observation_space: ObservationSpace, action_space: Space) -> Problem:
    steps, spec = scenario.training.max_steps, _network(scenario)
    steps_per_update = rollout_steps(scenario) * scenario.env.num_envs
    if spec.remembers and not algorithm(scenario.algorithm.name).remembers:
        able = [name for name in ALGORITHMS if algorithm(name).remembers]
        raise ProximaError(
            f"network.memory: {scenario.algorithm.name} cannot train a net with memory; set it to none, or "
            f"algorithm.name to {either(able)}"
        )
    return Problem(
        env_name=scenario.env.name,
        backend=scenario.env.backend,
        observation_space=observation_space,
        action_space=action_space,
        num_envs=scenario.env.num_envs,
        network=spec,
        total_updates=None if steps is None else -(-steps // steps_per_update),
    )


def _network(scenario: Any) -> NetworkSpec:
    config = scenario.network
    return NetworkSpec(network(domain_of(scenario), config.kind), config)


def _layout(scenario: Any, sample_cost: int, devices: int) -> Layout:
    """The layout for samples of this cost, which a net that remembers learns from in whole sequences."""
    config, num_envs = scenario.algorithm, scenario.env.num_envs
    chosen, remembers = algorithm(config.name), _network(scenario).remembers
    sequence = chosen.sequence_steps(config, num_envs) if remembers else 1
    share = chosen.shared_samples(config)
    if share % (devices * sequence) == 0:
        share *= sample_cost  # so dear a sample is worth a device's waiting sooner
    if scenario.training.trials_per_block is not None:
        # One device, so that the bits of a block do not depend on the machine that trains it.
        return Layout(1, 1)
    return plan_layout(scenario.trials, num_envs, share, devices, sequence)


def side_by_side(scenario: Any) -> int:
    """How many trials train side by side."""
    block: int | None = scenario.training.trials_per_block
    return scenario.trials if block is None else min(block, scenario.trials)


def _gang_layout(scenario: Any) -> Layout:
    """One trial's environments over all devices of the gang; an error where they cannot be divided."""
    config, num_envs, processes = scenario.algorithm, scenario.env.num_envs, process_count()
    chosen, devices = algorithm(config.name), len(jax.devices())
    where = f"{processes} processes × {devices // processes} devices"
    if scenario.trials > 1:
        raise ProximaError(
            f"trials: {scenario.trials}, and a gang trains one; set trials to 1, or train them in one "
            "process, where they lie side by side"
        )
    samples = chosen.shared_samples(config)
    if samples == 1:
        raise ProximaError(
            f"--processes: what {config.name} learns from is not divided among processes; train in one "
            "process, or with an algorithm that has algorithm.minibatch_size"
        )
    if num_envs % devices:
        raise ProximaError(
            f"env.num_envs: {num_envs} cannot be divided among {where}; make it a multiple of {devices}"
        )
    sequence = chosen.sequence_steps(config, num_envs) if _network(scenario).remembers else 1
    if samples % (devices * sequence):
        raise ProximaError(
            f"algorithm.minibatch_size: {samples} cannot be divided among {where}; make it a multiple of "
            f"{devices * sequence}"
        )
    return Layout(1, devices)


def settings(scenario: EnvironmentScenario) -> Settings:
    """What says how the scenario's trials train."""
    return Settings(
        scenario.training, scenario.evaluation, scenario.convergence, scenario.checkpoint
    )


def prepared(
    scenario: Any,
    built: Built,
    *,
    rules: Rules = Rules(),  # noqa: B008  (it cannot be changed)
    judge: Judge = lambda trained, outcomes: Verdict(outcomes),
    draw: Draw | None = None,
    film: Film = lambda path, name, recording: False,
    facts: Facts | None = None,
    summarize: Callable[..., Added] = lambda results, verdicts: Added(METRIC),
    artifacts: Sequence[str] = (),
    final_metrics: Callable[[TrialResult], Mapping[str, float]] = lambda trial: {},
    preview: MakePreview | None = None,
) -> Prepared:
    """One stage over all trials, judged by returns and by what the domain adds.

    `draw` is what the domain draws of a trial instead of its actions and a film; `preview` is what
    onlookers see of a trial's evaluations while it trains.
    """
    _check_memory(scenario, built)
    seeds = trial_seeds(scenario.seed, scenario.trials)
    episodes = scenario.evaluation.final_episodes
    draw_more = draw or partial(judging.draw_episodes, scenario, built, film)

    @cache
    def baselines() -> dict[str, Any]:
        return {name: play(episodes) for name, play in rules.baselines.items()}

    def judge_all(trained: Trained) -> Verdict:
        lanes = trained.lanes
        outcomes = judging.judge_lanes(built, lanes, episodes, rules, baselines())
        levels = judging.judge_levels(built, lanes, episodes, scenario.curriculum)
        judged = [replace(o, levels=each) for o, each in zip(outcomes, levels, strict=True)]
        return judge(trained, judged)

    def draw_trial(trained: Trained, lane: int, outcome: Outcome) -> None:
        judging.draw_learning(scenario, trained, lane)
        draw_more(trained, lane, outcome)

    def stage_of(trials: tuple[int, ...]) -> Stage:
        own = [seeds[trial] for trial in trials]
        program = built.training or built.program
        stage = reinforcement_stage(program, trials, own, settings(scenario), built.layout)
        return stage if preview is None else with_previews(stage, policies, preview)

    def policies(states: TrainState) -> list[PyTree]:
        # On the host: devices that each have some trials would have to talk to pick one.
        return checkpoint.split_trials(jax.vmap(built.agent.policy)(gathered(states.learner)))

    trials = tuple(range(scenario.trials))
    blocks = blocks_of(scenario.trials, side_by_side(scenario))

    def make(directory: Callable[[int], Path]) -> Trainable:
        return Trainable(
            stage=stage_of(trials),
            blocks=[stage_of(block) for block in blocks] if len(blocks) > 1 else (),
            judge=judge_all,
            export=partial(judging.export, scenario, built),
            draw=draw_trial,
            profile=partial(judging.phases, built.program),
            measure=partial(judging.measure, built.program),
            record=lambda state: built.program.record(state.learner),
        )

    def added(results: Sequence[TrialResult], verdicts: Sequence[Any]) -> Added:
        target = scenario.convergence.target_reward
        return summarize(results, verdicts)._replace(target=target)

    return Prepared(
        algorithm=scenario.algorithm.name,
        stages=[Planned("", trials, make, blocks=blocks)],
        summarize=added,
        final_metrics=final_metrics,
        facts=facts,
        references=lambda: judging.references(baselines()),
        artifacts=("policy", "film.gif", *artifacts),
        close=built.program.close,
        program=built.program,
    )
