"""`python -m tools.docs_site build`, or `serve [HOST:PORT]`."""

import sys

from . import __doc__ as about
from . import build, serve

match sys.argv[1:]:
    case ["build"]:
        sys.exit(build())
    case ["serve", *address]:
        sys.exit(serve(*address))
    case _:
        sys.exit(about)
