"""Change data capture: instances, triggers, agent, functions, procedures."""
