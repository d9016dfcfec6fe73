"""Personal data in texts: recognizers find it by its form; spans are replaced, and restored.

Knows no model, no HTTP and no files: texts and spans in, texts out.
"""
