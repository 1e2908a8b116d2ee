"""``python -m rlx``: the command line."""

import sys

from rlx.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
