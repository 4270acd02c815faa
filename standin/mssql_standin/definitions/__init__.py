"""CREATE, ALTER, DROP, GRANT and their kin: what changes the catalogue."""
