"""Proofs that the rules of specref are lossless: see README.md in this folder."""
