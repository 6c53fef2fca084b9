"""What each command answers: the overrides of the command line in, one JSON-able object out. Nothing is printed here.

``artifact.cli`` lists the functions, and shows what they return.
"""
