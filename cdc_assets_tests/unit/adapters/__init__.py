"""What stands between the product and other programs: SQL Server, Spark, Kafka, threads."""
