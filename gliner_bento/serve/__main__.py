"""`python -m gliner_bento.serve`: `gliner-bento serve` on gliner.serve's port, 8000, unless `--port` is given."""

from gliner_bento.cli import main
from gliner_bento.cli.flags import arguments
from gliner_bento.serve.names import PORT

raise SystemExit(main(["serve", "--port", str(PORT), *arguments()]))
