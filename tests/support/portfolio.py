"""A portfolio as one would keep it by hand: cash and units, one bar after the other, in plain floats."""

import itertools
import math


def by_hand(targets, prices, fee=0.0, rate=0.0, slippage=0.0):
    """Values of a portfolio of 1 after every bar; it trades only when the target changes."""
    cash, units, asked, values = 1.0, 0.0, 0.0, [1.0]
    for target, price, after in zip(targets, prices[:-1], prices[1:], strict=True):
        if target != asked:
            cash, units = trade(cash, units, target, price, fee, slippage)
            asked = target
        owed_units, owed_cash = max(0.0, -units), max(0.0, -cash)
        units -= rate * owed_units
        cash -= rate * owed_cash
        values.append(cash + units * after)
    return values


def trade(cash, units, target, price, fee, slippage=0.0):
    """Cash and units after the one trade that brings the portfolio to its target weight."""
    worth = cash + units * price
    if target * worth > units * price:  # pay cash, receive units less the fee
        gained = (1 - fee) / (1 + slippage)  # worth of the units that each unit of cash buys
        paid = (target * worth - units * price) / (gained + (1 - gained) * target)
        return cash - paid, units + paid * gained / price
    gained = (1 - fee) * (1 - slippage)  # cash for units that are worth one
    sold = (units * price - target * worth) / (1 - (1 - gained) * target)
    return cash + sold * gained, units - sold / price


def log_returns(values):
    """Logs of the growth from each value to the next."""
    return [math.log(after / before) for before, after in itertools.pairwise(values)]
