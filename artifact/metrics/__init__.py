"""Records in, numbers out: each with its formula, its unit and the case in which there is none."""
