"""The client in other libraries: pandas, polars, spaCy and Haystack. Each module needs the package of its name."""
