"""``python -m rlvr_probe.cli``, where the script is not on the path."""

import sys

from rlvr_probe.cli import main

if __name__ == "__main__":
    sys.exit(main())
