"""`python -m biloop` is the command `biloop`."""

import sys

from biloop.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
