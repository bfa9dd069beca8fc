"""What one site adds to a sum without a body, for tests that ask a client directly."""

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.spec import SumSpec
from fedfair.ids import RoundNumber
from fedfair.statistics.table import Purpose
from fedfair.training.client import TrainingClient

NO_MODEL = GlobalModel.__new__(GlobalModel)
"""In place of the model, for a sum that is about none: it has no attribute that anybody could read."""


def evaluation_of(client: TrainingClient, model: GlobalModel, number: int = 0, attempt: int = 1) -> Contribution:
    return client.contribution(_request(client, Purpose.EVALUATION, number, attempt), model)


def standardisation_of(client: TrainingClient, attempt: int = 1) -> Contribution:
    return client.contribution(_request(client, Purpose.STANDARDISATION, 0, attempt), NO_MODEL)


def _request(client: TrainingClient, purpose: Purpose, number: int, attempt: int) -> SumRequest:
    spec = SumSpec(purpose, 1, 0, client.layout.dtype)
    return SumRequest(purpose, RoundNumber(number), attempt, spec)
