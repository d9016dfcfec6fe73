"""Bulk extraction: the records of many files, to one file, continued where it was killed."""
