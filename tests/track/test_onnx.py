"""A policy as an ONNX model acts as the exported program does, in another library's runtime."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from gymnasium import spaces
from probes import probe
from problems import problem_of
from tracking import ABOUT

from proxima.build import algorithm
from proxima.core.errors import ProximaError
from proxima.core.network import NetworkSpec
from proxima.domains.control.gymnasium_spaces import translate
from proxima.domains.judging import policy_function
from proxima.domains.packing import attention, grid
from proxima.nets.actor_critic import MLPConfig
from proxima.track.onnx import check
from proxima.track.onnx.check import compare_actions, draw_observations, named_inputs
from proxima.track.onnx.convert import leaves, onnx_model, translate_program
from proxima.track.onnx.graph import Graph
from proxima.track.registry import export_program, load_exported, write_policy

BATCH = 7
SEEN = spaces.Box(-1, 1, (3,), np.float32)
WIDE = spaces.Box(-np.inf, np.inf, (2, 2), np.float64)
FIELDS = spaces.Dict(
    {
        "in": spaces.Dict({"b": spaces.Discrete(3, start=-1), "a": WIDE}),
        "flags": spaces.MultiBinary(2),
        "pixels": spaces.Box(0, 255, (2, 3), np.uint8),
        "action_mask": spaces.MultiBinary(3),
    }
)
PACKING = spaces.Dict(
    {
        "action_mask": spaces.MultiBinary(12),
        "ems": spaces.Box(0, 1, (4, 6), np.float32),
        "ems_mask": spaces.MultiBinary(4),
        "items": spaces.Box(0, 1, (3, 3), np.float32),
        "items_mask": spaces.MultiBinary(3),
        "items_placed": spaces.MultiBinary(3),
    }
)
MAZE = spaces.Dict(
    {
        "action_mask": spaces.MultiBinary(4),
        "walls": spaces.Box(0, 1, (3, 4), bool),
        "agent": spaces.Box(0, 2, (2,), np.int32),
        "target": spaces.Box(0, 2, (2,), np.int32),
    }
)


class Kind(NamedTuple):
    """What a policy is of."""

    observation: Any
    action: Any
    algorithm: str = "ppo"
    network: Any = MLPConfig(hidden=(8,))
    settings: dict[str, Any] = {}  # noqa: RUF012  (it is not changed)


POLICIES = {
    "choices": Kind(SEEN, spaces.Discrete(3)),
    "choices, relu, shared trunk": Kind(
        SEEN,
        spaces.Discrete(3, start=5),
        network=MLPConfig(hidden=(8, 8), activation="relu", shared_trunk=True),
    ),
    "choices, silu, 64 bits, normalised": Kind(
        WIDE,
        spaces.Discrete(3, start=2**40),
        network=MLPConfig(hidden=(8,), activation="silu"),
        settings={"normalize_observations": True},
    ),
    "choices, a number of a few": Kind(spaces.Discrete(4, start=-2), spaces.Discrete(2)),
    "masked, fields, normalised": Kind(
        FIELDS, spaces.Discrete(3), settings={"normalize_observations": True}
    ),
    "several choices": Kind(WIDE, spaces.MultiDiscrete([3, 3], start=[1, -4])),
    "a table of choices": Kind(SEEN, spaces.MultiDiscrete([[2, 2], [2, 2]])),
    "numbers": Kind(SEEN, spaces.Box(-2, 2, (1,), np.float32)),
    "a table of numbers": Kind(
        WIDE,
        spaces.Box(-0.1, 0.1, (2, 2), np.float64),
        network=MLPConfig(hidden=(8,), distribution="tanh_normal"),
    ),
    "one number, half bounded": Kind(SEEN, spaces.Box(-np.inf, 0.1, (), np.float64)),
    "16 bits": Kind(SEEN, spaces.Box(-0.1, 0.1, (2,), np.float16)),
    "deterministic": Kind(SEEN, spaces.Box(np.float32([10, 0]), np.float32([11, 100])), "ddpg"),
    "deterministic, normalised": Kind(
        WIDE, spaces.Box(-1, 1, (2,), np.float32), "ddpg", settings={"normalize_observations": True}
    ),
    "search": Kind(SEEN, spaces.Discrete(3), "spo"),
    "packing": Kind(
        PACKING,
        spaces.Discrete(12),
        network=NetworkSpec(
            attention.NETWORK, attention.AttentionConfig(blocks=1, heads=2, width=8)
        ),
    ),
    "maze": Kind(
        MAZE,
        spaces.Discrete(4),
        network=NetworkSpec(grid.NETWORK, grid.GridConfig(channels=2, sweeps=3, hidden=(8,))),
    ),
}


def export(kind: Kind, directory: Path) -> Path:
    """The policy of an agent that was never trained, with weights that make it take actions of all kinds."""
    chosen = algorithm(kind.algorithm)
    spaces_ = translate("Probe-v0", kind.observation, kind.action)
    pair = spaces_.observation_space, spaces_.action_space
    env = probe("obs", observation_space=pair[0], action_space=pair[1])  # for a search to copy
    problem = problem_of(pair, 2, kind.network, env=env)
    agent = chosen.make(chosen.config(name=kind.algorithm, **kind.settings), problem)
    random = np.random.default_rng(4)

    def loud(leaf):
        more = 0.5 * np.abs(random.normal(size=leaf.shape)).astype(np.float32)
        return leaf * 5 + more if leaf.dtype == jnp.float32 else leaf

    learner = jax.tree.map(loud, agent.init(jax.random.key(3)))
    function, weights = policy_function(agent, learner, spaces_.interface)
    exported = export_program(function, weights, {"observation": spaces_.interface.observation})
    ends = {"observation": spaces_.interface.observation, "action": spaces_.interface.action}
    write_policy(exported, weights, ABOUT | ends, directory)
    return directory


@pytest.mark.parametrize("name", POLICIES)
def test_a_model_acts_as_the_program_it_came_from(name, tmp_path):
    """For a batch, and for each of its rows as a batch of one."""
    directory = export(POLICIES[name], tmp_path / "policy")
    session = onnxruntime.InferenceSession(onnx_model(directory))
    policy = load_exported(directory)
    seen = set()
    for seed in range(3):
        observations = draw_observations(
            policy.about["observation"], BATCH, np.random.default_rng(seed)
        )
        inputs, wanted = named_inputs(observations), policy.act(observations)
        for rows in (slice(None), *(slice(k, k + 1) for k in range(BATCH))):
            given = {name: values[rows] for name, values in inputs.items()}
            same_actions(session.run(["action"], given)[0], wanted[rows])
        seen |= {row.tobytes() for row in wanted}
    assert len(seen) > 1, "one action for all would prove nothing"


def same_actions(actions: np.ndarray, wanted: np.ndarray) -> None:
    """The same choices, or the same numbers but for their last digits."""
    assert (actions.dtype, actions.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind == "f":
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(actions, wanted, rtol=0, atol=1e-6 * scale)
    else:
        np.testing.assert_array_equal(actions, wanted)


RANDOM = np.random.default_rng(6)
IMAGE, KERNEL = (6, 5, 3), (3, 2, 3, 4)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def gru(weights, inputs):
    """A gated recurrent unit: what is remembered goes in and out, and is forgotten at a reset."""
    x, reset = inputs["observation"], inputs["reset"]
    memory = jnp.where(reset[:, None], 0.0, inputs["memory"]["hidden"])
    gates = jax.nn.sigmoid(x @ weights["w"] + memory @ weights["u"])
    update, forget = jnp.split(gates, 2, axis=-1)
    candidate = jnp.tanh(x @ weights["wc"] + (forget * memory) @ weights["uc"])
    memory = (1 - update) * memory + update * candidate
    action = jnp.argmax(memory @ weights["out"], axis=-1)
    return {"action": action, "memory": {"hidden": memory}}


def convolved(weights, inputs):
    """Bytes scaled in the net, strides, padding, pooling, and rows of features out of pictures."""
    pictures = inputs["observation"].astype(jnp.float32) / 255
    numbers = ("NHWC", "HWIO", "NHWC")
    first = jax.lax.conv_general_dilated(
        pictures, weights["first"], (2, 1), "SAME", dimension_numbers=numbers
    )
    second = jax.lax.conv_general_dilated(
        jnp.moveaxis(jax.nn.relu(first), -1, 1),
        weights["second"],
        (1, 1),
        [(0, 0), (1, 0)],
        rhs_dilation=(1, 2),
        feature_group_count=2,
    )
    pooled = jax.lax.reduce_window(
        jnp.moveaxis(second, 1, -1), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 2, 1), "SAME"
    )
    summed = jax.lax.reduce_window(first, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return {
        "action": jnp.concatenate(
            [each.reshape(each.shape[0], -1) for each in (pooled, summed)], -1
        )
    }


def functions(weights, inputs):
    x = inputs["observation"]
    parts = [
        *(f(x) for f in (jnp.exp, jnp.sin, jnp.cos, jnp.abs, jnp.sign, jnp.floor, jnp.ceil)),
        *(
            f(x)
            for f in (jnp.expm1, jax.nn.softplus, jax.nn.elu, jax.nn.gelu, jax.lax.erf, jnp.round)
        ),
        *(jax.nn.gelu(x, approximate=False), jax.nn.leaky_relu(x), jax.nn.log_softmax(x)),
        *(jnp.sqrt(jnp.abs(x)), jnp.log1p(jnp.abs(x)), jnp.power(jnp.abs(x), 1.5), jnp.square(x)),
        *(jax.lax.rsqrt(1 + x * x), jax.nn.logsumexp(x, axis=-1, keepdims=True) - x),
        *(
            jnp.clip(x, -0.5, weights["high"]),
            jnp.fmod(x, 0.3),
            jnp.flip(x, -1),
            x.astype(jnp.float16),
        ),
        *(jnp.pad(x, ((0, 0), (1, 0)))[:, :-1], jnp.roll(x, 1, axis=-1), x[:, ::-1]),
        *(jnp.cumsum(x, axis=-1), jnp.maximum(x, 0.1), jnp.where(jnp.isfinite(x), x, 0.0)),
        jax.lax.fori_loop(0, 3, lambda k, value: value * 0.5 + k, x),
    ]
    return {"action": jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=-1)}


def counts(weights, inputs):
    """Whole numbers and truth values, looked up and reduced."""
    x, wide = inputs["observation"], weights["table"]
    chosen = jnp.argmax(x, axis=-1)
    least = jnp.argmin(x.astype(jnp.int8), axis=-1)
    flags = x > 0
    picked = jnp.take_along_axis(x, jnp.stack([chosen, least], -1), axis=-1)
    both = jax.lax.select(flags, ~flags, flags) ^ (x < 0.5)
    rows = jnp.stack(
        [
            *(chosen, least, jnp.argmax(flags, axis=-1), jnp.arange(x.shape[0])),
            *(flags.sum(axis=-1), flags.any(axis=-1), both.all(axis=-1), (x != x).any(axis=-1)),
            *((x.astype(jnp.uint8) + jnp.uint8(250)).max(axis=-1), (chosen // 2) % 3),
            jnp.prod(jnp.where(flags, 2, 1).astype(jnp.int16), axis=-1) & 12,
        ],
        axis=-1,
    )
    flagged = jnp.where(jnp.array([[True, False, True, True]]), x, -x)
    ends = (x * 100).astype(jnp.uint8), (x * 100).astype(jnp.int8), x.astype(jnp.uint32)
    found = [
        flagged,
        *ends,
        wide[chosen],
        wide[:, 1][least][:, None],
        wide[chosen, least][:, None],
        picked,
    ]
    found += [jnp.einsum("bi,bj->bij", x, x).reshape(x.shape[0], -1), x @ wide.T]
    found += [jax.lax.dynamic_slice(wide, (jnp.argmax(wide[:, 0]), 2), (1, 4)) + 0 * x]
    return {"action": jnp.concatenate([rows, *found], axis=-1, dtype=jnp.float64)}


HAND_MADE = {
    "a gated recurrent unit": (
        gru,
        {
            "w": floats(4, 10),
            "u": floats(5, 10),
            "wc": floats(4, 5),
            "uc": floats(5, 5),
            "out": floats(5, 3),
        },
        {
            "observation": floats(7, 4),
            "memory": {"hidden": floats(7, 5)},
            "reset": np.arange(7) % 3 == 1,
        },
    ),
    "pictures": (
        convolved,
        {"first": floats(*KERNEL), "second": floats(6, 2, 2, 2)},
        {"observation": RANDOM.integers(0, 256, (7, *IMAGE), np.uint8)},
    ),
    "functions": (functions, {"high": floats()}, {"observation": floats(7, 4)}),
    "counts": (counts, {"table": floats(4, 4)}, {"observation": floats(7, 4) * 3}),
}


def described(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {"fields": {name: described(leaf) for name, leaf in tree.items()}}
    return {"shape": list(tree.shape[1:]), "dtype": str(tree.dtype)}


def converted(function, weights, inputs) -> tuple[bytes, Any]:
    """The model, and the function that it was made of."""
    kinds = {name: described(leaf) for name, leaf in inputs.items()}
    exported = export_program(function, weights, kinds)
    program = jax.export.deserialize(bytearray(exported.program))
    graph = Graph()
    translate_program(graph, program, {name: np.asarray(leaf) for name, leaf in weights.items()})
    return graph.model("0", {}, ""), jax.jit(program.call)


@pytest.mark.parametrize("name", HAND_MADE)
def test_what_nets_are_made_of_has_a_translation(name):
    function, weights, inputs = HAND_MADE[name]
    model, program = converted(function, weights, inputs)
    session = onnxruntime.InferenceSession(model)
    for batch in (1, BATCH):
        rows = jax.tree.map(lambda leaf, n=batch: leaf[:n], inputs)
        with jax.enable_x64(True):
            wanted = dict(leaves(jax.tree.map(np.asarray, program(weights, rows))))
        if "memory.hidden" in wanted:  # has the name of an input
            wanted["next_memory.hidden"] = wanted.pop("memory.hidden")
        given = session.run(list(wanted), dict(leaves(rows)))
        for actions, (end, expected) in zip(given, wanted.items(), strict=True):
            assert (actions.dtype, actions.shape) == (expected.dtype, expected.shape), end
            np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=2e-6, err_msg=end)


REFUSED = {
    "the operation sort": lambda x: jnp.sort(x, axis=-1),
    "a loop whose length depends on the observation": lambda x: jax.lax.while_loop(
        lambda y: jnp.all(y < 9), lambda y: y + 1, x
    ),
    "a branch that depends on the observation": lambda x: jax.lax.cond(
        x.sum() > 0, lambda y: y, lambda y: -y, x
    ),
    "numbers of the type bf16": lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32),
    "looking up rows of the batch": lambda x: x[jnp.argmax(x, axis=-1)],
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_translation_is_refused_by_name(words, tmp_path):
    kind = {"shape": [2], "dtype": "float32"}
    exported = export_program(
        lambda weights, inputs: {"action": REFUSED[words](inputs["observation"])},
        {},
        {"observation": kind},
    )
    write_policy(exported, {}, ABOUT | {"observation": kind, "action": kind}, tmp_path / "policy")
    with pytest.raises(
        ProximaError, match=re.escape(f"it needs {words}, which has no translation")
    ):
        onnx_model(tmp_path / "policy")


@pytest.fixture(scope="module")
def masked(tmp_path_factory) -> Path:
    kind = POLICIES["masked, fields, normalised"]
    return export(kind, tmp_path_factory.mktemp("masked") / "policy")


def test_a_model_says_what_it_is_and_takes_what_the_environment_gives(masked):
    content = onnx_model(masked)
    assert content == onnx_model(masked), "the same bytes for the same policy"
    model = onnx.load_model_from_string(content)
    assert (model.ir_version, [each.version for each in model.opset_import]) == (8, [18])
    (policy,) = model.metadata_props
    assert json.loads(policy.value) == json.loads((masked / "policy.json").read_text())
    session = onnxruntime.InferenceSession(content)
    assert {each.name: (each.type, each.shape) for each in session.get_inputs()} == {
        "observation.action_mask": ("tensor(int8)", ["batch", 3]),
        "observation.flags": ("tensor(int8)", ["batch", 2]),
        "observation.in.a": ("tensor(double)", ["batch", 2, 2]),
        "observation.in.b": ("tensor(int64)", ["batch"]),
        "observation.pixels": ("tensor(uint8)", ["batch", 2, 3]),
    }
    (action,) = session.get_outputs()
    assert (action.name, action.type, action.shape) == ("action", "tensor(int64)", ["batch"])
    weights = {each.name for each in model.graph.initializer if "constant" not in each.name}
    named = set(json.loads(policy.value)["weights"])
    assert weights <= named and len(weights) > 6, "weights keep their names"
    assert "Expand" not in {node.op_type for node in model.graph.node}, "ONNX broadcasts by itself"


def test_a_model_that_acts_otherwise_is_refused(masked, tmp_path):
    content = onnx_model(masked)
    assert compare_actions(content, masked) == (check.OBSERVATIONS, check.OBSERVATIONS)
    model = onnx.load_model_from_string(content)
    (search,) = [node for node in model.graph.node if node.op_type == "ArgMax"]
    search.op_type = "ArgMin"
    with pytest.raises(ProximaError, match="its ONNX model acts otherwise at"):
        compare_actions(model.SerializeToString(), masked)


def test_observations_are_drawn_within_their_bounds():
    kind = translate("Probe-v0", FIELDS, spaces.Discrete(3)).interface.observation
    drawn = draw_observations(kind, 200, np.random.default_rng(0))
    assert drawn["action_mask"].any(axis=-1).all() and not drawn["action_mask"].all()
    assert set(drawn["in.b"].tolist()) == {-1, 0, 1}
    assert drawn["pixels"].max() > 200 and drawn["in.a"].std() > 0.5
    unlike = {"shape": [2], "dtype": "float64", "low": [None, 2.0], "high": [1.0, 3.0]}
    numbers = draw_observations(unlike, 200, np.random.default_rng(0))
    assert (numbers[:, 1] >= 2).all() and (numbers[:, 1] <= 3).all() and numbers[:, 0].std() > 0.5
