"""The tests, as a package: a child process imports `tests.support` by the same name."""
