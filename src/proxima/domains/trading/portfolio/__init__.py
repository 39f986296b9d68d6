"""Portfolios: several assets in one account, beside what others would have made of the same prices."""
