"""Answers of the commands in; tables for people out, one file for each kind of answer."""
