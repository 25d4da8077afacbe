"""The rules of `specref.rules`, run on symbols: theorems for all laws at a given size."""
