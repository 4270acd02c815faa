"""Topics of a capture as a whole, whose events are not rows: transactions, heartbeats, notifications."""
