"""A served policy, asked over a real socket: the same answers as load_policy, and words for the rest."""

import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import jax.numpy as jnp
import numpy as np
import pytest
from openapi_cases import send_cases
from schemathesis.checks import not_a_server_error
from served import serving

import proxima
from proxima.core.errors import ProximaError
from proxima.serve.batching import Rows, run_padded, run_together
from proxima.serve.http import Refusal, Route, Service, answer_json
from proxima.serve.limits import Limits
from proxima.serve.metrics import Metrics
from proxima.serve.policy import warm_up
from proxima.serve.run import Settings, bound_socket, check_exposure, make_service
from proxima.serve.sessions import Sessions
from proxima.track.registry import export_program, load_exported, write_policy

LIMITS = Limits(body_bytes=20_000, batch_rows=16, session_rows=4, sessions=3)
BOX = {"shape": [3], "dtype": "float32"}
MEMORY = {"fields": {"sum": {"shape": [3], "dtype": "float32"}}}


def act(weights, inputs):
    """Numbers of several roundings, with a sum over the episode where there is a memory."""
    seen = inputs["observation"]
    total = seen + (inputs["memory"]["sum"] if "memory" in inputs else 0.0)
    action = jnp.tanh(total @ weights["w"])
    return {"action": action} | ({"memory": {"sum": total}} if "memory" in inputs else {})


def written(directory, **more):
    """An exported policy of these inputs."""
    weights = {"w": np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)}
    export = export_program(act, weights, {"observation": BOX} | more)
    about = {
        **{"algorithm": "probe", "env": "Probe-v0", "observation": BOX},
        **{"action": {"shape": [64], "dtype": "float32"}},
        "checkpoint": {"kind": "last", "step": 7},
    }
    write_policy(export, weights, about | more, directory)
    return directory


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts servers, and ends them."""
    with ExitStack() as running:

        def begin(token=None, **more):
            directory = written(tmp_path_factory.mktemp("served") / "policy", **more)
            service = make_service(Settings(str(directory), token=token, limits=LIMITS))
            return running.enter_context(serving(service)), proxima.load_policy(directory)

        yield begin


@pytest.fixture(scope="module")
def plain(start):
    return start()


def test_actions_are_those_of_load_policy(plain):
    client, policy = plain
    batch = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    for seen in (batch[0].tolist(), batch.tolist()):
        status, answer = client.post("/predict", {"observation": seen})
        assert status == 200
        np.testing.assert_allclose(answer["action"], policy.predict(seen), rtol=1e-6)


def test_requests_that_come_together_get_their_own_answers(plain):
    client, policy = plain
    rows = np.random.default_rng(2).normal(size=(60, 3)).astype(np.float32)
    with ThreadPoolExecutor(12) as pool:
        answers = list(
            pool.map(lambda row: client.post("/predict", {"observation": row.tolist()}), rows)
        )
    actions = np.asarray([answer["action"] for _, answer in answers])
    np.testing.assert_allclose(actions, policy.predict(rows), rtol=1e-5, atol=1e-7)


def test_in_one_size_of_batch_a_row_has_the_same_bits_wherever_it_is(tmp_path):
    step = load_exported(written(tmp_path / "policy")).step
    rows = np.random.default_rng(3).normal(size=(16, 3)).astype(np.float32)
    whole, _ = run_padded(step, Rows(rows, {}, 16))
    apart = run_together(
        step, [Rows(rows[n : n + 1], {}, 1) for n in reversed(range(9))]
    )  # padded to 16
    for n, acted in zip(reversed(range(9)), apart, strict=True):
        assert acted.actions.tobytes() == whole[n : n + 1].tobytes()


def test_every_size_of_batch_is_compiled_before_the_first_request():
    sizes = []

    def step(observations, memory):
        sizes.append(len(observations))
        return observations, memory

    warm_up(step, {"observation": BOX}, Limits(batch_rows=6))  # six rows are padded to eight
    assert sizes == [1, 2, 4, 8]


def test_a_full_queue_is_said(tmp_path):
    directory = written(tmp_path / "policy")
    limits = LIMITS._replace(waiting_rows=2)
    with serving(make_service(Settings(str(directory), limits=limits))) as client:
        assert client.post("/predict", {"observation": [[0.0] * 3] * 2})[0] == 200
        status, answer = client.post("/predict", {"observation": [[0.0] * 3] * 3})
    assert status == 503 and "waiting already; try again soon" in answer["error"]["message"]


def test_named_fields_and_masks_go_with_the_observation(tmp_path):
    fields = {
        "scores": {"shape": [3], "dtype": "float32"},
        "action_mask": {"shape": [3], "dtype": "bool"},
    }

    def best_allowed(weights, inputs):
        seen = inputs["observation"]
        scores = jnp.where(seen["action_mask"], seen["scores"] + weights["w"], -jnp.inf)
        return {"action": jnp.argmax(scores, axis=-1).astype(jnp.int32)}

    weights, kind = {"w": np.float32(0)}, {"fields": fields}
    about = {
        **{"algorithm": "probe", "env": "Probe-v0", "observation": kind},
        **{"action": {"shape": [], "dtype": "int32", "n": 3, "start": 0}},
        "checkpoint": {"kind": "last", "step": 7},
    }
    directory = tmp_path / "policy"
    export = export_program(best_allowed, weights, {"observation": kind})
    write_policy(export, weights, about, directory)
    one = {"scores": [1.0, 3.0, 2.0], "action_mask": [True, False, True]}
    with serving(make_service(Settings(str(directory), limits=LIMITS))) as client:
        assert client.post("/predict", {"observation": one}) == (200, {"action": 2})
        missing = {"observation": {"scores": [1.0, 3.0, 2.0]}}
        status, answer = client.post("/predict", missing)
    assert status == 422 and "action_mask" in answer["error"]["message"]


def test_a_session_remembers_and_others_do_not_disturb_it(start):
    client, policy = start(memory=MEMORY)
    (_, one), (_, two) = client.post("/sessions"), client.post("/sessions")
    state = None
    for row in np.random.default_rng(4).normal(size=(4, 3)).astype(np.float32):
        action, state = policy.step(row, state)
        path = f"/sessions/{one['session']}/predict"
        assert client.post(path, {"observation": "x"})[0] == 422  # leaves the memory alone
        status, answer = client.post(path, {"observation": row.tolist()})
        client.post(f"/sessions/{two['session']}/predict", {"observation": [9, 9, 9]})
        assert status == 200
        np.testing.assert_allclose(answer["action"], action, rtol=1e-5)
    begun = {"observation": row.tolist(), "episode_start": [True]}
    np.testing.assert_allclose(
        client.post(path, begun)[1]["action"], policy.step(row)[0], rtol=1e-5
    )
    assert client.post(path, {"observation": [row.tolist()] * 2})[0] == 422
    assert client.send("DELETE", f"/sessions/{one['session']}")[0] == 204
    assert client.post(path, begun)[0] == 404


def test_sessions_are_bounded_and_idle_ones_end():
    now = 0.0
    sessions = Sessions(LIMITS, lambda: now)
    names = [sessions.begin() for _ in range(3)]
    with pytest.raises(Refusal) as caught:
        sessions.begin()
    assert caught.value.status == 503
    now = 500.0
    sessions.find(names[2])
    now = 700.0
    assert len(sessions) == 1
    with pytest.raises(Refusal):
        sessions.find(names[0])


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b"{", 400, "not valid JSON"),
        (b'{"observation": [NaN, 0, 0]}', 400, "NaN"),
        (b"[" * 15_000, 400, "not valid JSON"),
        (b"9" * 5_000, 400, "not valid JSON: a number has too many digits"),
        (b"\xff", 400, "not valid JSON"),
        (b" " * 20_001, 413, "20,000 bytes"),
        ([], 422, "object"),
        ({}, 422, "observation: is missing"),
        ({"observatoin": [0, 0, 0]}, 422, "observatoin: there is no such field"),
        ({"observation": None}, 422, "numbers"),
        ({"observation": ["1", "2", "3"]}, 422, "numbers"),
        ({"observation": [[0, 0, 0], [0]]}, 422, "equally long"),
        ({"observation": []}, 422, "observation"),
        ({"observation": [0, 0]}, 422, "shape"),
        (b'{"observation": [1e999, 0, 0]}', 422, "numbers"),
        ({"observation": [1e300, 0, 0]}, 422, "does not fit float32"),
        ({"observation": [2**80, 0, 0]}, 422, "numbers"),
        ({"observation": [[0, 0, 0]] * 17}, 413, "at most 16"),
        ({"raw": {"close": [1]}}, 422, "observations alone"),
    ],
)
def test_what_is_wrong_is_said(plain, content, status, words):
    given, answer = plain[0].post("/predict", content)
    assert given == status
    assert words in answer["error"]["message"]


def test_other_routes_methods_kinds_and_hosts_are_refused(plain):
    client, _ = plain
    assert client.send("GET", "/nothing")[0] == 404
    assert client.send("GET", "/predict")[0] == 405
    assert client.post("/predict", {}, Content_Type="text/plain")[0] == 415
    assert client.send("GET", "/health", Host="elsewhere.example")[0] == 421


def test_a_token_is_asked_for(start):
    client, _ = start(token="a-long-secret")
    body = {"observation": [0, 0, 0]}
    assert client.send("GET", "/health")[0] == 200
    assert client.send("GET", "/metrics")[0] == client.post("/predict", body)[0] == 401
    assert client.post("/predict", body, Authorization="Bearer a-long-secreT")[0] == 401
    assert client.post("/predict", body, Authorization="Bearer a-long-secret")[0] == 200


def test_the_network_is_served_only_with_a_token():
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.com"):
        with pytest.raises(ProximaError, match="--token"):
            check_exposure(host, None)
        check_exposure(host, "a-long-secret")
    for host in ("127.0.0.1", "::1", "localhost"):
        check_exposure(host, None)
    with pytest.raises(ProximaError, match="8 printable"):
        check_exposure("127.0.0.1", "short")


def test_a_taken_port_is_said():
    with bound_socket("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(ProximaError, match="try --port"):
            bound_socket("127.0.0.1", taken.getsockname()[1])


def test_metrics_count(plain):
    client, _ = plain
    client.post("/predict", {"observation": [[0, 0, 0]] * 3})
    text = client.send("GET", "/metrics")[1].decode()
    assert 'proxima_requests_total{route="/predict",status="200"}' in text
    assert 'proxima_batch_rows_bucket{le="+Inf"}' in text
    assert "POST /predict" in client.send("GET", "/docs")[1].decode()


def test_no_body_is_answered_by_a_500(plain):
    assert send_cases(plain[0], [not_a_server_error]) > 50


def test_another_method_is_told_which_there_are(plain):
    with urllib.request.urlopen(f"{plain[0].address}/health") as answer:
        assert answer.status == 200
    asked = urllib.request.Request(f"{plain[0].address}/health", method="DELETE")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(asked)
    with caught.value as answer:
        assert (answer.code, answer.headers["Allow"]) == (405, "GET")


def test_a_websocket_is_refused(plain):
    answer = plain[0].raw(
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 403 ")


def test_a_body_that_does_not_come_is_the_clients_fault():
    async def answer(request):
        return answer_json({})

    routes = (Route("POST", "/predict", answer, {}),)
    service = Service(routes, Limits(request_seconds=0.2), Metrics())
    with serving(service) as client:
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        answer = client.raw(head + b"{}")  # and no more
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer
    assert b"Content-Length" in answer and b"invalid_request_error" in answer
