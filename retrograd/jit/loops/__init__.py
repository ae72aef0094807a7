"""The loop language: what ops' `lower` records, what fusion joins, what a target renders."""
