"""A job for tests of runners."""

from cdc_assets.core.jobs import Job

JOB = Job("window", "test")
