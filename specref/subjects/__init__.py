"""Adapters for public samplers: each calls the library's own code, unmodified."""
