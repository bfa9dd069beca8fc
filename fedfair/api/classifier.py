"""A linear classifier in the manner of scikit-learn that protects the worst group of a size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from fedfair.api.fair_estimator import FairEstimator, counted_records
from fedfair.api.fit_verdict import FitVerdict, fit_verdict
from fedfair.conformal.class_sets import is_in_set
from fedfair.conformal.prediction_sets import PredictionSets
from fedfair.conformal.promise import Promise
from fedfair.conformal.threshold import worst_kept
from fedfair.fairness.constant_prediction import best_constant_risk
from fedfair.fairness.linear_design import Array, linear_design
from fedfair.fairness.linear_fit import fit_linear, linear_losses


class FairClassifier(ClassifierMixin, FairEstimator):  # type: ignore[misc]
    """A linear classifier that protects every group of at least a size, without anyone naming the groups.

    It minimises `(1 - tradeoff)` times the mean loss of all the worst group plus `tradeoff` times the mean loss of
    records; the loss is the cross-entropy in nats. A convex solver ends at the optimum, so no rate, schedule or
    number of steps is to be tuned, and the same records give the same model. Columns are standardised within.

    Below some size, which is a fact of the data, no linear model serves the worst group better than guessing does.
    A fit then warns (`WorstGroupWarning`), and `verdict_` tells the size from which on groups are served.

    Args:
        worst_group_size: the smallest share of the people that is protected (rho), above 0 to 1.
        tradeoff: weight of the overall mean (epsilon), from 0 to 1; at 1 this is logistic regression.
        ridge: factor of half the squared weights of the standardised columns, at least 0; None for one record's
            share of all records, which matters only where classes can be separated.
        class_weight: by how much the records of each label count more: a mapping from labels to factors,
            "balanced" for as much weight on each class, or None. It multiplies `sample_weight`.

    Attributes:
        classes_: the labels, sorted: array (K,).
        coef_: weights of the columns in their own units: array (1, p) for two classes, else (K, p).
        intercept_: array (1,) or (K,).
        verdict_: whether the worst group of the training records is served better than by guessing, and from which
            group size on.
        sets_: the promise of `predict_sets`, after `calibrate_sets`.

    Example:
        >>> import fedfair
        >>> from sklearn.datasets import load_breast_cancer
        >>> features, labels = load_breast_cancer(return_X_y=True)
        >>> model = fedfair.FairClassifier(worst_group_size=0.1).fit(features, labels)
        >>> model.verdict_.is_worse
        False
        >>> fedfair.worst_group_risk(model.record_losses(features, labels), 0.1) < 0.4
        True
    """

    def __init__(
        self,
        worst_group_size: float = 0.3,
        tradeoff: float = 0.3,
        *,
        ridge: float | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
    ) -> None:
        super().__init__(worst_group_size, tradeoff, ridge=ridge)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FairClassifier:  # noqa: N803
        """Fit the model.

        Args:
            X: array, sparse matrix or DataFrame (n, p), finite.
            y: labels (n,), of at least two classes.
            sample_weight: how many people each record stands for, (n,), at least 0; None for one each. The worst
                group is a share of these people.

        Raises:
            ValueError: a parameter is out of its range, or the records are none that a model can be fitted to.
        """
        self._check_parameters()
        self.__dict__.pop("sets_", None)  # those of an earlier fit
        features, answers = self._checked(X, y)
        check_classification_targets(answers)
        weights = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
        weights = weights * compute_sample_weight(self.class_weight, answers)
        self.classes_ = np.unique(answers[weights > 0.0])
        count = len(self.classes_)
        if count < 2:
            raise ValueError(
                f"a classifier needs records of at least two classes; those of positive weight have {count} class"
            )
        labels = np.searchsorted(self.classes_, answers).clip(max=count - 1)
        held = counted_records(features, labels.astype(np.float64), weights)
        numbers, ridge = held.answers.astype(np.int64), self._ridge_of(held)
        design = linear_design(held.features, numbers, count, ridge=ridge, shares=held.shares)
        found = fit_linear(design, self.worst_group_size, self.tradeoff)
        weighed = np.column_stack([design.back @ found, np.zeros(len(found))])  # the last class has the logit 0
        # A constant added to all logits changes nothing; this one makes the classes alike.
        weighed -= weighed.mean(axis=1, keepdims=True)
        slopes = (weighed[:-1] / held.scale[:, None]).T
        constants = weighed[-1] - slopes @ held.mean
        self.coef_ = slopes[1:] - slopes[:1] if count == 2 else slopes
        self.intercept_ = constants[1:] - constants[:1] if count == 2 else constants
        losses = linear_losses(found, design, held.features, numbers)[0]
        counts = np.bincount(numbers, weights=held.counts, minlength=count)
        self.verdict_: FitVerdict = fit_verdict(
            self.worst_group_size,
            lambda size: held.worst(losses, size),
            lambda size: best_constant_risk(counts.tolist(), size),
        )
        return self

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Return the logits: of two classes those of the second, array (n,); else array (n, K)."""
        check_is_fitted(self)
        features, _ = self._checked(X, reset=False)
        logits: Array = features @ self.coef_.T + self.intercept_
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Return the probability of each class: array (n, K), rows summing to 1."""
        return np.exp(self._log_chances(X))

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the most likely label of each record: array (n,)."""
        logits = self.decision_function(X)
        places = (logits > 0.0).astype(np.int64) if logits.ndim == 1 else logits.argmax(axis=1)
        chosen: np.ndarray = self.classes_[places]
        return chosen

    def calibrate_sets(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        group_size: float | None = None,
        missed: float = 0.1,
        confidence: float = 0.95,
    ) -> FairClassifier:
        """Find on held-out records which sets of labels miss no group of a size more often than a share.

        Args:
            X: array, sparse matrix or DataFrame (n, p), of records that no fit or choice of a model has seen.
            y: labels (n,), of those of the fit.
            group_size: the least share of people that a group has; None for `worst_group_size`.
            missed: the most of any such group whose label is not in its set, on average over draws of records.
            confidence: of `sets_.missed_at_most`, the bound on the share of all people whom these sets miss.

        Raises:
            ValueError: a parameter is out of its range, the records are too few for the promise, or a label is
                none of the training labels.
        """
        size = self.worst_group_size if group_size is None else group_size
        promise, scores = Promise(size, missed, confidence), np.exp(-self.record_losses(X, y))
        self.sets_ = PredictionSets("classes", promise, "test", len(scores), worst_kept(scores, promise))
        return self

    def predict_sets(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return which of `classes_` are in the set of each record: bool array (n, K), after `calibrate_sets`."""
        check_is_fitted(self, "sets_")
        return is_in_set(self.predict_proba(X), self.sets_.bound)

    def record_losses(self, X: Any, y: Any) -> Array:  # noqa: N803
        """Return the cross-entropy of each record in nats: array (n,), for `fedfair.worst_group_risk`.

        Raises:
            ValueError: a label is none of the training labels.
        """
        chances, answers = self._log_chances(X), np.asarray(y)
        unknown = answers[~np.isin(answers, self.classes_)]
        if len(unknown):
            raise ValueError(f"the label {unknown[0].item()!r} is none of {self.classes_.tolist()}")
        losses: Array = -chances[np.arange(len(answers)), np.searchsorted(self.classes_, answers)]
        return np.maximum(losses, 0.0)

    def _log_chances(self, X: Any) -> Array:  # noqa: N803
        logits = self.decision_function(X)
        if logits.ndim == 1:
            logits = np.column_stack([np.zeros(len(logits)), logits])
        shifted = logits - logits.max(axis=1, keepdims=True)
        chances: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return chances
