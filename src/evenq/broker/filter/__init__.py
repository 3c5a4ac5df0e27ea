"""Filters that a broker applies before messages go out: by hashes of tags where it reads a queue, by SQL92 here."""
