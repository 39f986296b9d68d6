"""Language scenarios: read strictly, and every impossible setting told with its path and a remedy."""

from types import SimpleNamespace

import pytest
from scenario_files import file_message, message

from proxima.domains.language.config import LanguageScenario
from proxima.domains.language.domain import curve, summarize
from proxima.domains.language.stages import stages_of
from proxima.run.evaluate import profile_scenario
from proxima.scenario import (
    EnvironmentScenario,
    dump,
    from_mapping,
    load,
    parse,
    shipped,
    to_mapping,
)

LANGUAGE = [name for name in shipped() if isinstance(load(name), LanguageScenario)]
LEAST = "domain: language\nsft: {}\nppo: {}\nreward_model: {}\n"
DPO = "domain: language\nsft: {}\ndpo: {}\n"


def names_of(scenario):
    return [stage.name for stage in stages_of(scenario)]


def test_the_domain_makes_the_kind():
    assert isinstance(load("movie_critic"), LanguageScenario)
    assert isinstance(load("cartpole"), EnvironmentScenario)
    assert names_of(load("movie_critic")) == ["sft", "reward_model", "ppo"]
    assert names_of(load("smollm2_positive")) == ["ppo"]
    assert names_of(load("movie_critic_dpo")) == ["sft", "reward_model", "dpo"]


def test_dpo_needs_no_reward_where_there_is_a_judge(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(DPO)
    scenario = load(path)
    assert names_of(scenario) == ["sft", "dpo"] and not scenario.has_reward
    assert scenario.policy is scenario.dpo
    assert curve(scenario) == ("dpo", "eval/judge")
    assert curve(load("movie_critic_dpo")) == ("dpo", "eval/reward")
    assert curve(load("movie_critic")) == ("ppo", "eval/reward")


@pytest.mark.parametrize(
    ("stages", "model"),
    [
        ("ppo: {}", "model"),
        ("dpo: {}", "model"),
        ("reward_model: {}", None),
        ("sft: {}\nreward_model: {}", "reference"),
    ],
)
def test_a_summary_names_only_what_a_stage_leaves(stages, model):
    text = f"domain: language\nmodel: {{path: tiny}}\nreward: {{path: judge}}\n{stages}\n"
    scenario = from_mapping(parse(text, "here"), "here")
    trial = SimpleNamespace(details=None, run_id="run")
    paths = summarize(scenario, [trial], []).paths
    assert (paths.get("model") and paths["model"].rpartition("/")[2]) == model
    assert ("samples" in paths) == ("po: {}" in stages), "only completions are shown"


@pytest.mark.parametrize("name", LANGUAGE)
def test_what_is_written_can_be_read_again(name):
    scenario = load(name)
    assert from_mapping(parse(dump(scenario), "again"), "again") == scenario


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_shipped_one_writes_only_what_differs_from_the_defaults(name):
    written = parse(shipped()[name].read_text(), name)
    policy = "dpo" if "dpo" in written else "ppo"
    least = LEAST.replace("ppo", policy) + "lora: {}\nsearch: {}\n"
    defaults = to_mapping(from_mapping(parse(least, name), name))

    def leaves(tree, above=()):
        for key, value in tree.items():
            here = (*above, key)
            yield from leaves(value, here) if isinstance(value, dict) else [(here, value)]

    others = dict(leaves(defaults))
    # The keys of a search's space are free: they have no defaults.
    repeated = [path for path, value in leaves(written) if path in others and others[path] == value]
    assert repeated == [("domain",)]


def test_a_stage_is_left_out_by_null_and_a_section_that_is_null_has_its_defaults(tmp_path):
    scenario = load("movie_critic", ["sft=null", "model.path=somewhere"])
    assert names_of(scenario) == ["reward_model", "ppo"]
    path = tmp_path / "mine.yaml"
    path.write_text(LEAST + "evaluation:\n")
    assert load(path).evaluation == load("movie_critic").evaluation


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("domain: languag\n", 'domain: "languag" is not known; did you mean language?'),
        (LEAST + "algorithm: {gamma: 0.9}\n", "algorithm: unknown section"),
        (LEAST.replace("ppo: {}", "ppo: {gama: 1.0}"), "ppo.gama: unknown key; did you mean"),
        (
            LEAST.replace("ppo: {}", "ppo: {clip_epsilon: -1.0}"),
            "ppo.clip_epsilon: -1.0 is not allowed",
        ),
        (
            LEAST.replace("ppo: {}", "ppo: {clip_epsilon: much}"),
            'ppo.clip_epsilon: expected a number, got "much"',
        ),
        (LEAST.replace("ppo: {}", "ppo: {advantage: gea}"), 'ppo.advantage: "gea" is not allowed'),
        ("domain: language\n", "ppo: there is no stage; write ppo: {}"),
        ("domain: language\nppo: {}\n", "sft: null, and a new model knows nothing yet"),
        (
            LEAST.replace("reward_model: {}", ""),
            "reward.kind: model, and there is none; write reward_model: {}",
        ),
        (
            LEAST + "reward: {kind: function}\n",
            "reward.function: null, and reward.kind is function",
        ),
        (LEAST + "reward: {per_token: true}\n", "reward.per_token: true, and reward.kind is model"),
        (LEAST + "reward: {function: a.b}\n", 'reward.kind: "a.b", and reward.kind is model'),
        (LEAST + "data: {source: file}\n", "data.path: null, and data.source is file"),
        (LEAST + "data: {prompt_template: Go on}\n", 'data.prompt_template: "Go on" does not say'),
        (LEAST + "data: {chat: true}\n", "data.chat: true, and a new model has no chat template"),
        (LEAST + "model: {new: {width: 90}}\n", "model.new.width: 90 is not a multiple of twice"),
        (LEAST + "lora: {targets: [q, w]}\n", 'lora.targets.1: "w" is not allowed: must be q, k'),
        (
            LEAST.replace("ppo: {}", "ppo: {new_tokens: 36}"),
            "ppo.new_tokens: 36 after prompts of data.prompt_tokens (5) do not fit",
        ),
        (
            LEAST.replace("ppo: {}", "ppo: {batch_size: 50, minibatch_size: 4}"),
            "ppo.batch_size: 50 is not a multiple of ppo.minibatch_size (4); "
            "nearest that work: 48 or 52",
        ),
        (
            LEAST.replace("ppo: {}", "ppo: {minibatch_size: 32, micro_batches: 3}"),
            "ppo.minibatch_size: 32 is not a multiple of ppo.micro_batches (3); "
            "nearest that work: 30 or 33",
        ),
        (
            LEAST + "dpo: {}\n",
            "dpo: given, and so is ppo: both train the policy, from the same start; leave one out",
        ),
        (DPO.replace("dpo: {}", "dpo: {beta: 0.0}"), "dpo.beta: 0.0 is not allowed"),
        (DPO.replace("dpo: {}", "dpo: {los: ipo}"), "dpo.los: unknown key; did you mean loss?"),
        (DPO.replace("dpo: {}", "dpo: {loss: hinge}"), 'dpo.loss: "hinge" is not allowed'),
        (DPO.replace("dpo: {}", "dpo: {label_smoothing: 0.5}"), "dpo.label_smoothing: 0.5 is not"),
        (
            DPO.replace("dpo: {}", "dpo: {loss: ipo, label_smoothing: 0.1}"),
            "dpo.label_smoothing: 0.1, and dpo.loss is ipo, which smooths no labels",
        ),
        (
            DPO.replace("dpo: {}", "dpo: {new_tokens: 36}"),
            "dpo.new_tokens: 36 after prompts of data.prompt_tokens (5) do not fit",
        ),
        (
            DPO + "evaluation: {judge: null}\n",
            "evaluation.judge: null, and there is no reward either, so that nobody would measure",
        ),
        (DPO + "model: {mesh: {data: 3}}\n", "dpo.batch_size: 64 cannot be divided into"),
        (
            LEAST.replace("ppo: {}", "ppo: {batch_size: 6, advantage: group}"),
            "ppo.batch_size: 6 is not a multiple of ppo.group_size (4)",
        ),
    ],
)
def test_mistakes_are_told_with_their_path(text, told, tmp_path):
    assert told in file_message(tmp_path, text)


def test_what_needs_an_environment_says_so():
    said = message(profile_scenario, load("movie_critic"))
    assert said.startswith("movie_critic: has no environment; ")
