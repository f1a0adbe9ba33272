"""What a fit leaves in an estimator, whatever its kind."""

from typing import Any

import numpy as np

from biloop.sklearn.fitting import Fitted


def record(estimator: Any, fitted: Fitted, groups: np.ndarray) -> None:
    """Penalties (one for each group), losses of cross-validation, and how they were found."""
    estimator.alpha_ = fitted.best.alpha
    estimator.alphas_ = fitted.alphas[np.unique(groups, return_index=True)[1]]
    estimator.cv_loss_common_ = fitted.best.value
    estimator.cv_loss_ = fitted.tuned.value
    estimator.n_iter_ = max(1, fitted.tuned.steps)
