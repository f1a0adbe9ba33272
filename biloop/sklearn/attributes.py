"""What a fit leaves in an estimator, whatever its kind."""

from typing import Any

from biloop.sklearn.fitting import Fitted


def record(estimator: Any, fitted: Fitted) -> None:
    """Penalties, losses of cross-validation, and how they were found."""
    estimator.alpha_ = fitted.common.alpha
    estimator.alphas_ = fitted.tuned.alphas
    estimator.cv_loss_common_ = fitted.common.value
    estimator.cv_loss_ = fitted.tuned.value
    estimator.shrinkage_ = fitted.shrinkage
    estimator.n_iter_ = max(1, fitted.tuned.steps)
