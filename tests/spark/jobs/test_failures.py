"""What is left of Spark's long errors."""

from __future__ import annotations

from evenq.spark.jobs.failures import reason

WORKER = """[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: Job aborted due to stage failure:
Task 0 in stage 0.0 failed 1 times, most recent failure: org.apache.spark.api.python.PythonException: Traceback:
Traceback (most recent call last):
  File "worker.py", line 3, in main
    process()
ZeroDivisionError: division by zero

	at org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:100)
Driver stacktrace: SQLSTATE: XXKST"""


def test_an_error_of_a_worker_is_told_in_its_own_words() -> None:
    assert reason(WORKER) == "ZeroDivisionError: division by zero"


def test_our_own_error_is_told_even_if_others_follow_from_it() -> None:
    text = (
        "Traceback (most recent call last):\nevenq.errors.ConnectError: connection to x:1: refused\nRuntimeError: later"
    )
    assert reason(text) == "connection to x:1: refused"


def test_what_spark_says_loses_its_names_of_classes() -> None:
    text = "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error. SQLSTATE: KD001\n\tat x.y"
    assert reason(text) == "Encountered error."
    assert reason(f"An error occurred while calling o92.save.\n: {text}") == "Encountered error."
    assert reason("[DATA_SOURCE_NOT_FOUND] Failed to find delta. SQLSTATE: 42K02") == "Failed to find delta."


def test_silence_is_told_too() -> None:
    assert reason("\n \n") == "Spark failed without a word"


def test_where_in_a_query_something_is_wrong_is_left_out() -> None:
    text = "[UNRESOLVED_COLUMN] There is no `a`. SQLSTATE: 42703; line 1 pos 0;\n'Project ['a]\n+- Relation [b#0L]"
    assert reason(text) == "There is no `a`."
