"""``python -m jigsaw_opt`` is the command ``jigsaw``."""

import sys

from jigsaw_opt.cli import main

sys.exit(main())
