"""This deployment: which captures, which Spark, and what the sample's stand-in server holds."""
