"""The paper's tables and figures as commands: `biloop reproduce table3`.

A target computes units of work, which are kept in a folder (`table1`), judges what the paper says
by them (`table1_claims`), and shows both (`reports`): tables beside the printed numbers, claims
with verdicts, figures. `targets` joins the three, `runner` writes the folder.
"""

from biloop.paper.runner import DOCUMENT, reproduce
from biloop.paper.target import Options, Target
from biloop.paper.targets import TARGETS

__all__ = ["DOCUMENT", "TARGETS", "Options", "Target", "reproduce"]
