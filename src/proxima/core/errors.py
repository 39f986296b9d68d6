"""The one error a user meets: it says what is wrong, where, and what would be right."""


class ProximaError(Exception):
    """A failure that is the input's or the surroundings', told in words; everything else is a bug."""
