"""A site's waits, without the waiting."""

from collaborator.calls import Backoff


class CountedBackoff(Backoff):
    """Notes the waits instead of waiting."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.waits: list[float] = []

    def next(self) -> float:
        self.waits.append(super().next())
        return 0.0
