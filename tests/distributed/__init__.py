"""Programs that the tests of sharding start in interpreters of their own."""
