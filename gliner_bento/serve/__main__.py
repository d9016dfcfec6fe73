"""`python -m gliner_bento.serve`: `gliner-bento serve` on gliner.serve's port, 8000, unless `--port` is given."""

import os
import sys

from gliner_bento.settings.gliner_serve import PORT

command = [sys.executable, "-m", "gliner_bento.cli", "serve", "--port", str(PORT)]
os.execv(sys.executable, [*command, *sys.argv[1:]])
