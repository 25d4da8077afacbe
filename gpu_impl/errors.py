"""One way to refuse an argument."""


def need(holds: bool, message: str) -> None:
    """Raise unless something holds.

    Raises:
        ValueError: with the message, which names the argument and the cure.
    """
    if not holds:
        raise ValueError(message)
