"""Words that others wrote, made harmless to whatever shows them: a terminal, a page, a picture."""


def printable(text: str) -> str:
    """Return somebody's words without characters that steer a terminal, turn a line's direction, or break XML."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
