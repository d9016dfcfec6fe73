"""See the package."""

import sys

from . import main

sys.exit(main(check=sys.argv[1:] == ["--check"]))
