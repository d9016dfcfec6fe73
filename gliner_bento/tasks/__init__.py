"""What the server does with a text: the options of a request, an item in which they are decided, its result, and the
parts that all of them consist of.

Imports pydantic, and of the package only `errors` and `privacy`.
"""
