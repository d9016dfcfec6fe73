"""Texts of documents: PDF, Word, Excel, HTML and mail. Knows no model, no server and no file of ours.

`process.DocumentProcess` reads a document in another process, `read.document_of` in this one.
"""
