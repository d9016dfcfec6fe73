"""`python -m gliner_bento.cli`."""

from gliner_bento.cli import main

raise SystemExit(main())
