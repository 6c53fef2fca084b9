"""Questions about capture sizes in; the sizes to take, why, and what they save, out."""
