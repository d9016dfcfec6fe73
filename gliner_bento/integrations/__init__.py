"""The client in other libraries: `dataframes` (pandas or polars), `spacy`, `haystack`. Each needs its library."""
