"""Problems that ship, each with a start and with what is known about it."""

from biloop.problems.catalogue import Entry, Shipped, catalogue, load
from biloop.problems.data_cleaning import DataCleaning, data_cleaning
from biloop.problems.hyper_network import HyperNetwork, hyper_network
from biloop.problems.hyper_representation import HyperRepresentation, hyper_representation
from biloop.problems.log_cosh import LogCosh, log_cosh
from biloop.problems.logistic import Logistic, logistic
from biloop.problems.quadratic import Quadratic, quadratic
from biloop.problems.ridge import Ridge, ridge
from biloop.problems.robust_quadratic import RobustQuadratic, robust_quadratic
from biloop.problems.softmax_ridge import SoftmaxRidge, softmax_ridge
from biloop.problems.worst_case import WorstCase, admissible_worst_case, worst_case

__all__ = [
    # by name
    "catalogue",
    "load",
    "Entry",
    "Shipped",
    # with constants that are known
    "worst_case",
    "admissible_worst_case",
    "quadratic",
    "robust_quadratic",
    "log_cosh",
    "WorstCase",
    "Quadratic",
    "RobustQuadratic",
    "LogCosh",
    # on samples
    "ridge",
    "logistic",
    "softmax_ridge",
    "data_cleaning",
    "hyper_representation",
    "hyper_network",
    "Ridge",
    "Logistic",
    "SoftmaxRidge",
    "DataCleaning",
    "HyperRepresentation",
    "HyperNetwork",
]
