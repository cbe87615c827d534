"""Who says whether what is there is right; shares no code with what it judges."""
