"""Texts of documents: PDF, Word, Excel, HTML and mail. Knows no model, no server and no file of ours.

`process.DocumentProcess.read` makes records of the bytes and the name of a document, in another process;
`read.document_of` does it in this one, which needs lxml and pypdf.
"""
