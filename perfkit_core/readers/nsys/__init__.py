"""Reader of the SQLite files that Nsight Systems exports (``nsys export --type sqlite``)."""
