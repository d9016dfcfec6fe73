"""The client in other libraries. `dataframes` needs pandas or polars; `spacy` and `haystack` need those packages."""
