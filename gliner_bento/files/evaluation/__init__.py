"""Judges predictions by examples whose entities and relations are known: readers, scores, the report."""
