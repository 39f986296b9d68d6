"""Searches with known answers, as `proxima tune` would leave them behind."""

import numpy as np

from proxima.tune.results import Configuration, Confirmed, Copy, SearchResult

RATE, EPOCHS, GAMMA, NET = (
    "algorithm.learning_rate",
    "algorithm.epochs",
    "algorithm.gamma",
    "net.activation",
)
SPACE = {
    RATE: "log:1e-05:0.1",
    EPOCHS: "int:1:10",
    GAMMA: "0.9:0.999",
    NET: "choice:tanh,relu,swish",
}
OWN = {RATE: 3e-4, EPOCHS: 4, GAMMA: 0.99, NET: "tanh"}
BUDGET = 100_000  # environment steps of a training


def configuration(number, settings, value, **changes):
    """A finished configuration of one seed with a straight learning curve."""
    whole = {
        "values": (value,),
        "state": "broken" if value is None else "done",
        "steps": BUDGET,
        "curve": () if value is None else ((BUDGET // 2, value / 2), (BUDGET, value)),
        "finished": (number + 1) * BUDGET,
    }
    return Configuration(number, settings, value, **whole | changes)


def search(configurations, **changes):
    """A search of these configurations that was not confirmed; the best is chosen."""
    known = [each for each in configurations if each.value is not None]
    best = max(known, key=lambda each: each.value, default=None)
    whole = {
        "scenario": "cartpole",
        "search_id": "20261118-120000-beef",
        "method": "random",
        "metric": "eval/return_mean",
        "objective": "final",
        "direction": "maximise",
        "space": SPACE,
        "seeds": 1,
        "own": OWN,
        "configurations": tuple(configurations),
        "chosen": None if best is None else best.number,
        "choosing": (),
        "test": (),
        "copies": (),
        "steps": BUDGET * len(configurations),
        "seconds": 321.5,
        "programs": 1,
    }
    return SearchResult(**whole | changes)


def one_setting(function, count=60, noise=0.0, seed=0, **changes):
    """A search over a, which explains the value, and b, which does not matter; both from 0 to 1."""
    generator = np.random.default_rng(seed)
    rows = []
    for number, (a, b) in enumerate(generator.uniform(size=(count, 2)).tolist()):
        value = float(function(a) + noise * generator.normal())
        rows.append(configuration(number, {"x.a": a, "x.b": b}, value))
    return search(rows, space={"x.a": "0:1", "x.b": "0:1"}, own={"x.a": 0.5, "x.b": 0.5}, **changes)


def drawn(generator):
    """Settings from the ranges of SPACE."""
    return {
        RATE: float(10 ** generator.uniform(-5, -1)),
        EPOCHS: int(generator.integers(1, 11)),
        GAMMA: float(generator.uniform(0.9, 0.999)),
        NET: str(generator.choice(["tanh", "relu", "swish"])),
    }


def response(settings):
    """A return from 10 to about 500: best at a rate of 0.001, more so with tanh, and with many epochs."""
    rate = np.exp(-((np.log10(settings[RATE]) + 3.0) ** 2) / 0.9)
    epochs = 0.6 + 0.4 * min(settings[EPOCHS], 6) / 6
    return float(10 + 490 * rate * epochs * (1.0 if settings[NET] == "tanh" else 0.85))


def surface(count=64, seeds=2, seed=0):
    """64 configurations on 4 settings as successive halving leaves them: a few broken, many stopped."""
    generator = np.random.default_rng(seed)
    rows, spent = [], 0
    for number in range(count):
        settings = drawn(generator)
        level = response(settings)
        broken = settings[RATE] > 0.04
        stopped = not broken and level < 250
        steps = BUDGET // 9 if broken or stopped else BUDGET
        spent += steps * seeds
        end = level * (0.4 if stopped else 1.0)
        values = tuple(float(v) for v in np.clip(end + 12 * generator.normal(size=seeds), 8, 500))
        times = np.linspace(steps / 10, steps, 10)
        path = np.mean(values) * (1 - np.exp(-4 * times / steps)) + 6 * generator.normal(size=10)
        rows.append(
            configuration(
                number,
                settings,
                None if broken else float(np.mean(values)),
                values=(None,) * seeds if broken else values,
                state="broken" if broken else "stopped" if stopped else "done",
                steps=steps,
                curve=tuple(zip(map(int, times), map(float, path), strict=True))[
                    : 4 if broken else 10
                ],
                finished=spent,
            )
        )
    return confirmed(search(rows, method="asha", seeds=seeds, steps=spent), generator)


def confirmed(result, generator, seeds=5):
    """The search with its three best run again, and the chosen one beside the scenario's own settings."""
    order = sorted(
        (each for each in result.configurations if each.value is not None),
        key=lambda each: -each.value,
    )
    again = [
        Confirmed(
            each.number, noisy(each.value - 10, generator, seeds), tuple(range(100, 100 + seeds))
        )
        for each in order[:3]
    ]
    tested = tuple(range(200, 200 + seeds))
    best = max(again, key=lambda each: np.mean(each.values)).number
    level = result.configurations[best].value
    test = (
        Confirmed(best, noisy(level - 12, generator, seeds), tested),
        Confirmed(None, noisy(level - 70, generator, seeds), tested),
    )
    return result._replace(chosen=best, choosing=tuple(again), test=test)


def noisy(level, generator, count):
    """So many returns around a level."""
    return tuple(float(v) for v in np.minimum(level + 9 * generator.normal(size=count), 500))


def population(members=16, generations=8, seed=0):
    """A population whose worst members copy the best ones every 10,000 steps and change the settings."""
    generator = np.random.default_rng(seed)
    settings = [drawn(generator) for _ in range(members)]
    first = [dict(each) for each in settings]
    scores, copies = np.zeros(members), []
    curves = [[] for _ in range(members)]
    for generation in range(1, generations + 1):
        steps = 10_000 * generation
        scores += [response(each) / generations for each in settings]
        for member in range(members):
            curves[member].append((steps, float(scores[member])))
        order = np.argsort(scores)
        if generation == generations:
            break
        for member, source in zip(order[:3].tolist(), order[-3:].tolist(), strict=True):
            factor = generator.choice([1 / 1.2, 1.2])
            changed = settings[source] | {RATE: settings[source][RATE] * float(factor)}
            settings[member], scores[member] = changed, scores[source]
            copies.append(Copy(steps, member, source, changed))
    end = 10_000 * generations
    rows = [
        configuration(
            member, first[member], float(scores[member]), steps=end, curve=tuple(curves[member]),
            finished=end * members,
        )
        for member in range(members)
    ]  # fmt: skip
    return search(rows, method="pbt", copies=tuple(copies), steps=end * members)


def all_broken(count=5):
    """A search of which nothing is left."""
    generator = np.random.default_rng(0)
    return search([configuration(k, drawn(generator), None) for k in range(count)])


def many_settings(count=40, settings=12):
    """A search over a dozen settings with long paths, of which the first two matter together."""
    generator = np.random.default_rng(1)
    paths = [f"algorithm.{'nested.' * (k % 3)}setting_number_{k}" for k in range(settings)]
    rows = []
    for number, row in enumerate(generator.uniform(size=(count, settings)).tolist()):
        value = 1000 * abs(row[0] - row[1]) - 500 + 20 * float(generator.normal())
        rows.append(configuration(number, dict(zip(paths, row, strict=True)), value))
    space, own = dict.fromkeys(paths, "0:1"), dict.fromkeys(paths, 0.5)
    return search(rows, space=space, own=own)


def mixed_choices(count=30):
    """Choices of texts, numbers, true and nothing in one setting, and long texts in another."""
    generator = np.random.default_rng(2)
    texts = ("a text that is much longer than a column or a tick can ever be", "short", "<b>&")
    choices = {"x.mixed": (None, True, 1, 0.5, "auto", "1"), "x.text": texts}
    rows = []
    for number in range(count):
        picked = {p: of[int(generator.integers(len(of)))] for p, of in choices.items()}
        value = float(5.0 * (picked["x.mixed"] is None) + generator.normal())
        rows.append(configuration(number, picked, value))
    space = {"x.mixed": "choice:null,true,1,0.5,auto", "x.text": "choice:" + ",".join(texts)}
    return search(rows, space=space, own={"x.mixed": None, "x.text": "short"})
