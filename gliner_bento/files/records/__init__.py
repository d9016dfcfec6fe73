"""Records in files: reads text files, JSONL, CSV and Parquet; writes extractions as JSONL, CSV and Parquet."""
