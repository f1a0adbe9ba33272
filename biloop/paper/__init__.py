"""The paper's tables and figures as commands: `biloop reproduce table3`.

A target (one file each) computes units of work, which are kept in a folder, and makes of them a
section: tables beside the printed numbers, claims with verdicts, figures.
"""

from biloop.paper.runner import DOCUMENT, TARGETS, reproduce
from biloop.paper.target import Options, Target

__all__ = ["DOCUMENT", "TARGETS", "Options", "Target", "reproduce"]
