"""`python -m gliner_bento.cli`."""

from gliner_bento.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
