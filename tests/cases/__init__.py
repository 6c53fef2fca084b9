"""What went wrong in the field, a file a topic: each kind of fault and what is right."""
