"""scikit-learn estimators: linear models with many penalties, tuned by hypergradients."""

try:
    import sklearn as sklearn
except ImportError:
    raise ImportError("biloop.sklearn needs scikit-learn: pip install 'biloop[sklearn]'.") from None

from biloop.sklearn.classification import AdaptiveLogisticCV, GroupLogisticCV
from biloop.sklearn.regression import AdaptiveElasticNetCV, AdaptiveRidgeCV, GroupRidgeCV

__all__ = [
    "GroupRidgeCV",
    "GroupLogisticCV",
    "AdaptiveRidgeCV",
    "AdaptiveLogisticCV",
    "AdaptiveElasticNetCV",
]
