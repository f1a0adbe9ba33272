"""Problems that ship, each with a start and with what is known about it."""

from biloop.problems.cleaning import DataCleaning, data_cleaning
from biloop.problems.cross_validation import KFold, k_fold
from biloop.problems.distilling import Distillation, distillation
from biloop.problems.log_cosh_quadratics import LogCosh, log_cosh
from biloop.problems.logistic_regression import Logistic, logistic
from biloop.problems.many_tasks import ridge_head, tasks
from biloop.problems.named import Loaded, load
from biloop.problems.precision import in_precision
from biloop.problems.quadratics import Quadratic, quadratic
from biloop.problems.representation import HyperRepresentation, hyper_representation
from biloop.problems.representation_network import HyperNetwork, hyper_network
from biloop.problems.ridge_regression import Ridge, ridge
from biloop.problems.robust_quadratics import RobustQuadratic, robust_quadratic
from biloop.problems.sampled_quadratics import sampled_quadratic
from biloop.problems.shipped import Entry, catalogue
from biloop.problems.softmax_regression import SoftmaxRidge, softmax_ridge
from biloop.problems.sources import Mixture, mixture
from biloop.problems.synthetic import sparse_classes, sparse_regression
from biloop.problems.theorem_four import WorstCase, admissible_worst_case, worst_case

__all__ = [
    # by name
    "catalogue",
    "load",
    "Entry",
    "Loaded",
    # with constants that are known
    "worst_case",
    "admissible_worst_case",
    "quadratic",
    "sampled_quadratic",
    "robust_quadratic",
    "log_cosh",
    "WorstCase",
    "Quadratic",
    "RobustQuadratic",
    "LogCosh",
    # in fewer bits
    "in_precision",
    # of many tasks
    "tasks",
    "ridge_head",
    # on samples
    "k_fold",
    "ridge",
    "logistic",
    "softmax_ridge",
    "data_cleaning",
    "mixture",
    "distillation",
    "hyper_representation",
    "hyper_network",
    "Ridge",
    "Logistic",
    "SoftmaxRidge",
    "DataCleaning",
    "Mixture",
    "Distillation",
    "HyperRepresentation",
    "HyperNetwork",
    "KFold",
    # samples for them
    "sparse_regression",
    "sparse_classes",
]
