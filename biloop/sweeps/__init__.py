"""Many runs in one compiled program: seeds × step sizes × loop sizes × starts.

axes (what varies) → cells (what each run is given) → batches (what runs together) → lanes
(the engine) → driver (plan, checkpoint, Ctrl-C) → table (what came out, with labels)
"""

from biloop.sweeps.driver import sweep
from biloop.sweeps.table import Sweep

__all__ = ["Sweep", "sweep"]
