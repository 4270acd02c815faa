"""Spark as task runner, and IO managers on Spark data frames."""
