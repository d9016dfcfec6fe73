"""Records in files: text files, JSONL, CSV and Parquet in, JSONL and Parquet with extractions out."""
