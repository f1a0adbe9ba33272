"""What a fit leaves in an estimator, whatever its kind."""

from typing import Any

import numpy as np

from biloop.sklearn.fitting import Fitted


def record(estimator: Any, fitted: Fitted, groups: np.ndarray) -> None:
    """Penalties (one for each group), losses of cross-validation, and how they were found."""
    estimator.alpha_ = fitted.common.alpha
    estimator.alphas_ = fitted.alphas[np.unique(groups, return_index=True)[1]]
    estimator.cv_loss_common_ = fitted.cv_loss_common
    estimator.cv_loss_ = fitted.cv_loss
    estimator.n_iter_ = max(1, fitted.steps)
