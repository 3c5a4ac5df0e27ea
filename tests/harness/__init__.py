"""What the test suites run on: marks, seeds, shared servers, a second try for live tests.

| module | what it does |
| --- | --- |
| ``scale`` | how much a test does in ``make test`` and in ``make test-long`` |
| ``live`` | which tests need processes, JVMs or brokers, and a guard that no other test starts one |
| ``order`` | which test runs when, and on which worker |
| ``shared`` | one real RocketMQ cluster for all workers of a run |
| ``seeds`` | the run's random seed: printed, and taken from ``--seed`` |
| ``spark_jvm`` | how JVMs of Spark programs start quickly |
| ``second_try`` | runs a live test that failed once more, alone, and names it as unstable if it passes |
"""
