"""What the server does with a text. A task is one module and one row of `table.py`; the rest of the server knows only
what `base.py` says of all tasks.

Imports pydantic, and of the package only `errors` and `privacy.recognizers`.
"""
