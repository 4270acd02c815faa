"""The wire, with a scripted engine behind it and real drivers before it."""
