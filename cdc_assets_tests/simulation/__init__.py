"""Everything at once in one process, by seed, held against one law; `docs/simulation.md` tells how it is used."""
