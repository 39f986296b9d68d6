"""The one error meant for users: it says what is wrong, where, and what would be right."""


class ProximaError(Exception):
    """The input or the machine is at fault, in words for the user; any other exception is a bug."""


class Contradiction(ProximaError):
    """Settings that are each right alone but not together: a search draws others."""
