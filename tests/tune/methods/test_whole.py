"""Whole trainings, generation by generation."""

from proxima.tune.method import Order
from proxima.tune.methods.whole import WholeTrainings

EVERY = [{"a": number} for number in range(4)]


def everything(number):
    return True


def test_orders_come_by_number_among_those_that_fit():
    method = WholeTrainings(7, EVERY)
    assert method.next(lambda number: number % 2 == 1) == Order(1, 0, 7)
    assert method.next(everything) == Order(0, 0, 7)
    assert method.next(lambda number: number < 2) is None
    assert [method.next(everything) for _ in range(3)] == [Order(2, 0, 7), Order(3, 0, 7), None]
    assert method.wanted() == set()


def test_a_generation_is_drawn_when_all_values_before_are_known():
    calls = []

    def draw(settings, values):
        calls.append((list(settings), values))
        return [{"a": len(settings)}] if len(settings) < 6 else []

    method = WholeTrainings(1, EVERY[:2], draw)
    assert [method.next(everything) for _ in range(3)] == [Order(0, 0, 1), Order(1, 0, 1), None]
    method.tell(1, 1, 0.5)
    assert not calls and method.next(everything) is None
    method.tell(0, 1, 2.0)
    assert calls == [(EVERY[:2], [2.0, 0.5])]
    assert method.settings == EVERY[:3] and method.next(everything) == Order(2, 0, 1)
    for number in range(2, 6):
        method.tell(number, 1, 0.0)
    assert len(method.settings) == 6 and method.next(lambda number: number != 2) is None


def test_the_given_list_is_left_alone():
    given = list(EVERY)
    method = WholeTrainings(1, given, lambda settings, values: [{"a": 9}])
    for number in range(4):
        method.tell(number, 1, 0.0)
    assert given == EVERY and len(method.settings) == 5
