"""The configuration: from YAML to frozen settings, checked as a whole."""
