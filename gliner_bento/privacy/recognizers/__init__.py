"""Finds personal data that has a form: numbers with check digits, addresses, phone numbers, and codes after a word.

Knows no model, no HTTP and no request: texts in, `Match`es out. Imports a recognizer's library when it is first used.
"""
