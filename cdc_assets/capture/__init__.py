"""What all activities of one capture share: its statements, instances, restores and endings."""
