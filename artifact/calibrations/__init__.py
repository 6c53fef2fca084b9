"""Cost models fitted on measured steps, one JSON file per GPU and model."""
