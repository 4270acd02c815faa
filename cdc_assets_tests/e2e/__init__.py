"""The product as a user sees it: real daemon, killed runs, web pages."""
