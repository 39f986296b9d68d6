"""A language run behind HTTP, asked by OpenAI's own client: the texts are those that the domain generates."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from openapi_cases import send_cases
from programs import compilations
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from served import serving
from texts import TINY, write_texts

import proxima
from proxima.domains.domain import Piece, TextJob, TextModel, TextRequest
from proxima.domains.language import talk
from proxima.domains.language.serving import Wording
from proxima.scenario import load
from proxima.serve.chat import serve_texts
from proxima.serve.http import Refusal, Service
from proxima.serve.limits import Limits
from proxima.serve.metrics import Metrics
from proxima.serve.run import Settings, make_service
from proxima.serve.texts import Writing

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% endfor %}a:"
LIMITS = Limits(text_rows=4, body_bytes=20_000)
PROMPT = "the film was"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The directory of a run that was trained, which others can be served from too."""
    directory = tmp_path_factory.mktemp("run")
    write_texts(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        proxima.run_multiple_experiments(
            load("movie_critic", TINY | {"reward_model": None, "ppo": None})
        )
    return directory


@pytest.fixture(scope="module")
def served(home):
    """The run, served to OpenAI's client and to any other; and the domain's own way to ask it."""
    logs = str(home / "logs")
    service = make_service(Settings("movie_critic", output_directory=logs, limits=LIMITS))
    with serving(service) as client:
        yield client, talk.load(talk.find_model("movie_critic", logs))


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=f"{served[0].address}/v1", api_key="none", max_retries=0) as asking:
        yield asking


def told(speaker, prompt, count=1, seed=0, **settings):
    """What the domain itself generates."""
    asked = speaker._replace(settings=speaker.settings._replace(**settings))
    return talk.say(asked, prompt, count, seed)


def ask(client, prompt=PROMPT, **settings):
    return client.completions.create(model="movie_critic", prompt=prompt, **settings)


def test_greedy_text_is_what_the_domain_generates(served, client):
    (expected,) = told(served[1], PROMPT, new_tokens=12, greedy=True)
    answer = ask(client, max_tokens=12, temperature=0)
    assert answer.choices[0].text == expected.text != ""
    assert answer.choices[0].finish_reason == ("stop" if expected.ended else "length")
    count = len(served[1].tokenizer.encode([PROMPT])[0])
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (count, expected.tokens)
    assert usage.total_tokens == count + expected.tokens


@pytest.mark.parametrize("top_p", [1.0, 0.7])
def test_drawn_texts_are_those_of_the_domain_with_the_same_seed(served, client, top_p):
    expected = told(served[1], PROMPT, 3, 7, new_tokens=12, top_p=top_p)
    answer = ask(client, max_tokens=12, temperature=1, seed=7, n=3, top_p=top_p)
    assert [choice.text for choice in answer.choices] == [text.text for text in expected]
    assert len({choice.text for choice in answer.choices}) > 1
    assert answer.usage.completion_tokens == sum(text.tokens for text in expected)


def test_a_text_does_not_depend_on_who_is_served_beside_it(client):
    def one(seed):
        return ask(client, max_tokens=8 + seed % 5, seed=seed).choices[0].text

    alone = [one(seed) for seed in range(10)]
    with ThreadPoolExecutor(10) as pool:
        together = list(pool.map(one, range(10)))
    assert together == alone
    assert len(set(alone)) > 5


def test_a_stream_says_the_same_in_pieces(served, client):
    settings = dict(max_tokens=12, seed=3, n=2)
    messages = [{"role": "user", "content": PROMPT}]
    whole = client.chat.completions.create(model="movie_critic", messages=messages, **settings)
    stream = client.chat.completions.create(
        model="movie_critic",
        messages=messages,
        stream=True,
        stream_options={"include_usage": True},
        **settings,
    )
    texts, ends, roles, pieces = ["", ""], [None, None], set(), list(stream)
    for piece in pieces:
        for choice in piece.choices:
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason or ends[choice.index]
            roles.add(choice.delta.role)
    assert texts == [choice.message.content for choice in whole.choices]
    assert ends == [choice.finish_reason for choice in whole.choices]
    assert "assistant" in roles
    assert pieces[-1].usage == whole.usage
    assert len(pieces) > 6
    body = {"prompt": PROMPT, "stream": True, "max_tokens": 3}
    sent = served[0].send("POST", "/v1/completions", body)[1]
    assert sent.endswith(b"data: [DONE]\n\n")
    assert all(json.loads(line[6:])["id"] for line in sent.decode().split("\n\n")[:-2])


def test_without_a_chat_template_messages_are_lines(served, client):
    turns = [{"role": "system", "content": "the film"}, {"role": "user", "content": "was"}]
    answer = client.chat.completions.create(
        model="movie_critic", messages=turns, temperature=0, max_tokens=8
    )
    (expected,) = told(served[1], "the film\nwas", new_tokens=8, greedy=True)
    assert answer.choices[0].message.content == expected.text


def test_a_chat_template_is_used_and_a_folder_served(home):
    folder = next(home.glob("logs/movie_critic/runs/*/trial_0/reference"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    try:
        speaker = talk.load(talk.find_model(str(folder)))
        with serving(make_service(Settings(str(folder), limits=LIMITS))) as client:
            body = {"temperature": 0, "max_tokens": 6}
            parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "film"}]
            turns = [{"role": "user", "content": parts}]
            status, answer = client.post("/v1/chat/completions", {"messages": turns} | body)
    finally:
        (folder / "chat_template.jinja").unlink()
    (expected,) = told(speaker, "u:the filma:", new_tokens=6, greedy=True)
    assert status == 200 and answer["model"] == "reference"
    assert answer["choices"][0]["message"]["content"] == expected.text


def test_a_stop_ends_a_text_and_is_left_out(client):
    whole = ask(client, max_tokens=16, temperature=0).choices[0].text
    stop = whole[4:7]
    answer = ask(client, max_tokens=16, temperature=0, stop=["never", stop])
    assert answer.choices[0].text == whole[: whole.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    stream = ask(client, max_tokens=16, temperature=0, stop=stop, stream=True)
    assert "".join(piece.choices[0].text for piece in stream) == answer.choices[0].text


def test_several_prompts_and_ids(served, client):
    ids = served[1].tokenizer.encode([PROMPT])[0]
    answer = ask(client, ["a story", PROMPT], max_tokens=6, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1]
    alone = ask(client, ids, max_tokens=6, temperature=0)
    assert alone.choices[0].text == answer.choices[1].text


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["movie_critic"]
    assert client.models.retrieve("movie_critic").owned_by == "proxima"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


@pytest.mark.parametrize(
    ("settings", "param", "words"),
    [
        ({"max_tokens": 0}, "max_tokens", "whole number from 1"),
        ({"max_tokens": 10_000}, "prompt", "longer than the model's context"),
        ({"temperature": -1}, "temperature", "from 0 to 2"),
        ({"temperature": 0.001}, "temperature", "0: the likeliest"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"seed": -1}, "seed", "from 0"),
        ({"n": 5}, "n", "more than 4"),
        ({"stop": ["a"] * 5}, "stop", "up to 4"),
        ({"stop": ""}, "stop", "1 to 256"),
        ({"prompt": [10**6]}, "prompt", "ids must be from 0"),
        ({"prompt": {"text": "a"}}, "prompt", "expected a text"),
        ({"prompt": ["a"] * 5}, "n", "more than 4"),
        ({"logprobs": 3}, "logprobs", "leave it out"),
        ({"logprobs": 0}, "logprobs", "leave it out"),  # asks for those of the tokens themselves
        ({"best_of": True}, "best_of", "leave it out"),
        ({"extra_body": {"stream": 0}}, "stream", "true or false"),
        ({"extra_body": {"stream": ""}}, "stream", "true or false"),
        ({"stream_options": {"include_usage": []}}, "include_usage", "true or false"),
        ({"stream_options": {"include_obfuscation": 1}}, "include_obfuscation", "true or false"),
        ({"extra_body": {"beams": 3}}, "beams", "no such field"),
    ],
)
def test_what_is_wrong_is_said_in_openais_form(client, settings, param, words):
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        ask(client, **settings)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_another_model_and_wrong_messages_are_refused(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt", prompt="a")
    assert caught.value.code == "model_not_found"
    said = {"role": "user", "content": "a"}
    wrong = (
        [],
        "a",
        [{"role": "robot", "content": "a"}],
        [{"role": "user"}],
        [said | {"name": "b"}],
    )
    for messages in (*wrong, [said | {"tool_calls": [{"id": "c"}]}]):
        with pytest.raises(openai.BadRequestError, match="messages"):
            client.chat.completions.create(model="movie_critic", messages=messages)


def test_characters_come_whole_and_stops_are_held_back():
    class Bytes:
        def decode(self, ids):
            return bytes(ids).decode(errors="replace")

    wording = Wording(Bytes(), ["END"])
    given = [wording.add(byte, False) for byte in "é EN EN".encode()]
    assert [text for text, _ in given] == ["", "é", " ", "", "", "EN ", "", ""]
    assert wording.add(ord("D"), False) == ("", True)
    cut = Wording(Bytes(), [])
    assert [cut.add(0xC3, False), cut.add(0xC3, True)] == [("", False), ("\ufffd\ufffd", False)]


class Slow:
    """A model that writes when it is let, and notes what was given up."""

    def __init__(self):
        self.jobs, self.dropped, self.broken = [], [], False
        self.model = TextModel("slow", {}, 1, None, self.begin, self.step, self.dropped.append)

    def begin(self, job):
        if self.jobs:
            return None
        self.jobs.append(job)
        return [Piece(job, 0, "a", 1, None)]

    def step(self):
        if self.broken:
            raise RuntimeError("broken")
        time.sleep(0.001)
        return [Piece(job, 0, "b", 2, None) for job in self.jobs if job not in self.dropped]


def job(prompt="a"):
    return TextJob(TextRequest(prompt, 0), [1], 10)


def test_whoever_leaves_is_dropped_and_too_many_are_refused():
    async def use():
        slow = Slow()
        writing = Writing(slow.model, Limits(waiting_texts=2), Metrics())
        first = writing.ask([job()])
        assert (await anext(first)).text == "a"
        waiting = [writing.ask([job("b")]), writing.ask([job("c")])]
        with pytest.raises(Refusal) as caught:
            writing.ask([job("d")])
        assert caught.value.status == 503
        await first.aclose()
        while not slow.dropped:
            await asyncio.sleep(0.001)
        assert slow.dropped[0] is slow.jobs[0]
        slow.broken = True  # everybody who waits hears of it
        for asked in waiting:
            with pytest.raises(RuntimeError, match="broken"):
                await anext(asked)
        slow.broken, slow.jobs = False, []
        again = writing.ask([job("e")])
        assert (await anext(again)).text == "a"
        await again.aclose()

    asyncio.run(asyncio.wait_for(use(), 30))


def test_a_client_that_goes_frees_its_rows(served, client):
    with ask(client, max_tokens=19, stream=True, n=4) as stream:
        next(iter(stream))
    answer = ask(client, max_tokens=3, n=4)  # needs all rows
    assert len(answer.choices) == 4


def test_what_a_client_sends_back_of_an_answer_is_taken(client):
    turns = [{"role": "user", "content": "the"}]
    answer = client.chat.completions.create(model="movie_critic", messages=turns, max_tokens=2)
    turns += [answer.choices[0].message, {"role": "user", "content": "was"}]
    assert client.chat.completions.create(model="movie_critic", messages=turns, max_tokens=2)


def test_another_number_of_tokens_compiles_nothing(client):
    ask(client, max_tokens=16)  # its own numbers are drawn by a program for 9 to 16
    with compilations() as compiled:
        for count in (9, 11, 14):
            ask(client, max_tokens=count)
    assert compiled == []


def test_no_request_is_answered_by_a_500(served):
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
        negative_data_rejection,
    ]
    assert send_cases(served[0], checks, 30, "/v1/") > 100


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "seed": ' + b"9" * 4_000 + b"}",
        b'{"prompt": [' + b"9" * 4_000 + b"]}",
        b'{"prompt": "a", "n": 1000000000}',
        b'{"prompt": "a", "max_tokens": 2147483647}',
        b'{"prompt": "a\0"}',
        b'{"prompt": "a\\ud800"}',
        b'{"prompt": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"prompt": "a", "model": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"prompt": "a", "\\ud800": 1}',
    ],
    ids=lambda body: body[:32].decode(),
)
def test_extreme_values_are_refused(served, body):
    status, answer = served[0].post("/v1/completions", body)
    assert status in (400, 404) and answer["error"]["message"]


class Reader:
    """A model whose prompts take long to read."""

    def __init__(self):
        self.count, self.may_go_on = 0, threading.Event()
        self.model = TextModel("reader", {}, 4, self.read, self.begin, list, lambda job: None)

    def read(self, request):
        self.count += 1
        assert self.may_go_on.wait(30)
        return TextJob(request, [1], 1)

    def begin(self, job):
        return [Piece(job, 0, "a", 1, "length")]


@pytest.fixture
def reader():
    reader = Reader()
    routes = serve_texts(reader.model, LIMITS, Metrics())
    with serving(Service(routes, LIMITS, Metrics())) as client:
        yield reader, client


def test_a_long_prompt_being_read_keeps_nobody_waiting(reader):
    reader, client = reader
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.post, "/v1/completions", {"prompt": "a"})
        try:
            while not reader.count:
                time.sleep(0.001)
            assert client.send("GET", "/v1/models")[0] == 200
            assert not asked.done()
        finally:
            reader.may_go_on.set()
        assert asked.result()[1]["choices"][0]["text"] == "a"


def test_too_many_prompts_are_refused_before_one_is_read(reader):
    reader, client = reader
    status, answer = client.post("/v1/completions", {"prompt": ["a"] * 1_000})
    assert (status, answer["error"]["param"], reader.count) == (400, "n", 0)
