"""fedfair: federated models that are fair to every sizeable group, without anyone naming the groups.

The names of `__all__` are the public Python API, and the only one: every other module is private by convention and
may move. Each name is loaded when it is first used, so that `import fedfair` takes a moment and needs no library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fedfair.extras import missing_extra
from fedfair.version import __version__

if TYPE_CHECKING:
    from fedfair.api.advice import ObjectiveAdvice, advise
    from fedfair.api.certificates import VerifiedCertificate, verify_certificate
    from fedfair.api.classifier import FairClassifier
    from fedfair.api.comparison import ModelComparison
    from fedfair.api.fit_verdict import WorstGroupWarning
    from fedfair.api.passports import VerifiedPassport, verify_passport
    from fedfair.api.regressor import FairRegressor
    from fedfair.api.simulation import SimulatedFederation, UntrainedModelWarning, simulate
    from fedfair.errors import FedfairError
    from fedfair.fairness.rcvar_loss import RCVaRLoss
    from fedfair.fairness.worst_group import worst_group_risk
    from fedfair.plan.loading import load_plan
    from fedfair.plan.schema import Plan
    from fedfair.prediction.loaded_model import SavedModel, load_model

__all__ = [
    "FairClassifier",
    "FairRegressor",
    "FedfairError",
    "ModelComparison",
    "ObjectiveAdvice",
    "Plan",
    "RCVaRLoss",
    "SavedModel",
    "SimulatedFederation",
    "UntrainedModelWarning",
    "VerifiedCertificate",
    "VerifiedPassport",
    "WorstGroupWarning",
    "__version__",
    "advise",
    "load_model",
    "load_plan",
    "simulate",
    "verify_certificate",
    "verify_passport",
    "worst_group_risk",
]

_PLACES = {
    "FairClassifier": "fedfair.api.classifier",
    "FairRegressor": "fedfair.api.regressor",
    "FedfairError": "fedfair.errors",
    "ModelComparison": "fedfair.api.comparison",
    "ObjectiveAdvice": "fedfair.api.advice",
    "SavedModel": "fedfair.prediction.loaded_model",
    "SimulatedFederation": "fedfair.api.simulation",
    "Plan": "fedfair.plan.schema",
    "RCVaRLoss": "fedfair.fairness.rcvar_loss",
    "UntrainedModelWarning": "fedfair.api.simulation",
    "VerifiedCertificate": "fedfair.api.certificates",
    "VerifiedPassport": "fedfair.api.passports",
    "WorstGroupWarning": "fedfair.api.fit_verdict",
    "advise": "fedfair.api.advice",
    "load_model": "fedfair.prediction.loaded_model",
    "load_plan": "fedfair.plan.loading",
    "simulate": "fedfair.api.simulation",
    "verify_certificate": "fedfair.api.certificates",
    "verify_passport": "fedfair.api.passports",
    "worst_group_risk": "fedfair.fairness.worst_group",
}


if not TYPE_CHECKING:  # a type checker that saw this function would take any name for a public one

    def __getattr__(name: str) -> object:
        """Return a public name, loading its module at its first use."""
        if name not in _PLACES:
            raise AttributeError(f"module 'fedfair' has no attribute {name!r}; it has {', '.join(__all__)}")
        try:
            module = importlib.import_module(_PLACES[name])
        except ModuleNotFoundError as error:
            words = missing_extra(error)
            if not words:
                raise
            raise ImportError(f"fedfair.{name}: {words}") from error
        found: object = getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """Return the public names, for completion; none of them is loaded."""
    return __all__
