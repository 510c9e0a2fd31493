import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from test_report_tally import ANSWER, FAILURE, SUCCESS

from batchinfer.errors import CannotCreateError, ConfigError, DamagedJournalError
from batchinfer.journal.record import encode
from batchinfer.model import ErrorClass, Failure, Outcome, Problem, RowId, Success
from batchinfer.report.results import MAX_PROBLEMS, MergeCounts, Records, merge, verify
from batchinfer.report.shapes import Form, InputLine

PENDING_ERROR = {"class": "pending", "message": "not done yet"}


def key_of(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()


def inputs(*raws: bytes, name: RowId = None) -> list[InputLine]:
    return [(index, name, key_of(raw), raw) for index, raw in enumerate(raws)]


def answered(raw: bytes, output: bytes = b'"yes"', row: int = 0) -> Success:
    answer = structs.replace(ANSWER, output=output)
    return structs.replace(SUCCESS, row=row, key=key_of(raw), answer=answer)


def broken(raw: bytes, message: str = "no", error: ErrorClass = ErrorClass.TIMEOUT) -> Failure:
    return structs.replace(FAILURE, key=key_of(raw), problem=Problem(error, message))


class Job:
    """The files of a job in a folder."""

    def __init__(self, folder: Path) -> None:
        self.success = folder / "j.success.jsonl"
        self.failure = folder / "j.failure.jsonl"
        self.results = folder / "j.results.jsonl"

    def add(self, *outcomes: Outcome) -> None:
        for outcome in outcomes:
            path = self.success if isinstance(outcome, Success) else self.failure
            with path.open("ab") as sidecar:
                sidecar.write(encode(outcome))

    def merge(self, lines: Iterable[InputLine], form: Form = "results") -> MergeCounts:
        return merge(lines, self.success, self.failure, self.results, form)

    def problems(self, lines: Iterable[InputLine]) -> list[str]:
        return verify(lines, self.success, self.failure, self.results).problems

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.results.read_bytes().splitlines()]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


A, B, C = b'{"text":"a"}', b'{"text":"b"}', b'{"text":"c"}'


def test_results_stand_in_input_order_with_failures_and_pending_rows(job: Job) -> None:
    job.add(answered(C, b'{"label": "neutral"}'), broken(B), answered(A))

    counts = job.merge([(0, "x", key_of(A), A), *inputs(A, B, C, b'{"text":"d"}')[1:]])

    assert counts == MergeCounts(rows=4, succeeded=2, failed=1, pending=1, surplus=0)
    usage = {"input": 100, "output": 20, "cached": 40, "reasoning": 5}
    assert job.lines()[0] == {
        "row": 0,
        "id": "x",
        "input": {"text": "a"},
        "output": "yes",
        "error": None,
        "finish_reason": "stop",
        "usage": usage,
    }
    assert ",".join(job.lines()[0]) == "row,id,input,output,error,finish_reason,usage"
    assert [line["row"] for line in job.lines()] == [0, 1, 2, 3]
    assert [line["output"] for line in job.lines()] == ["yes", None, {"label": "neutral"}, None]
    error = job.lines()[1]["error"]
    assert isinstance(error, dict)
    assert (error["class"], error["message"]) == ("timeout", "no")
    assert job.lines()[3]["error"] == PENDING_ERROR


def test_the_first_success_wins_and_success_beats_failure(job: Job) -> None:
    job.add(broken(A), answered(A, b'"first"'), answered(A, b'"second"'), broken(A))

    counts = job.merge(inputs(A))

    assert job.lines()[0]["output"] == "first"
    assert job.lines()[0]["error"] is None
    assert counts == MergeCounts(rows=1, succeeded=1, failed=0, pending=0, surplus=1)


def test_the_latest_failure_of_a_row_wins(job: Job) -> None:
    job.add(broken(A, "old", ErrorClass.TIMEOUT), broken(A, "new", ErrorClass.REFUSED))

    job.merge(inputs(A))

    error = job.lines()[0]["error"]
    assert isinstance(error, dict)
    assert (error["class"], error["message"]) == ("refused", "new")


def test_each_success_satisfies_one_of_several_equal_rows(job: Job) -> None:
    job.add(answered(A, b"1"), answered(A, b"2"))

    counts = job.merge(inputs(A, B, A, A))

    assert [line["output"] for line in job.lines()] == [1, None, 2, None]
    assert (counts.succeeded, counts.pending) == (2, 2)


def test_answers_of_rows_that_are_gone_are_left_out_and_counted(job: Job) -> None:
    job.add(answered(A), answered(B))

    assert job.merge(inputs(B)) == MergeCounts(1, 1, 0, 0, surplus=1)


def test_the_input_stands_in_the_results_byte_for_byte(job: Job) -> None:
    raw = b'{ "b":1.50,  "a":12345678901234567890123, "a":"\\u00e9" }'

    job.merge(inputs(raw))

    assert raw in job.results.read_bytes()


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"  {}\r", {}),
        (b"[1,2]", [1, 2]),
        (b"not json", "not json"),
        (b'{"cut": ', '{"cut":'),
        (b'{"bad":"\xff"}', '{"bad":"\ufffd"}'),
        (b'{"n":NaN}', '{"n":NaN}'),
        (b'{"half":"\\ud800"}', '{"half":"\\ud800"}'),
        (b"[" * 5_000, "[" * 5_000),
        (b'{"a":\r1}', {"a": 1}),
        ("line\u2028separator".encode(), "line\u2028separator"),
    ],
)
@pytest.mark.parametrize("form", ["results", "flat"])
def test_any_input_line_becomes_one_line_of_valid_json(
    job: Job, raw: bytes, shown: object, form: Form
) -> None:
    job.add(answered(raw))

    job.merge(inputs(raw), form)

    text = job.results.read_bytes()
    assert (text.count(b"\n"), text.count(b"\r"), text[-1:]) == (1, 0, b"\n")
    found = json.loads(text)
    assert found["output"] == "yes"
    if form == "results":
        assert found["input"] == shown
    else:
        assert found == (shown if isinstance(shown, dict) else {"input": shown}) | {"output": "yes"}


def test_an_output_of_several_lines_becomes_one(job: Job) -> None:
    job.add(answered(A, b'{\r\n  "a": 1\r\n}'))

    job.merge(inputs(A))

    assert job.lines()[0]["output"] == {"a": 1}


def test_flat_lines_are_the_input_with_its_output(job: Job) -> None:
    taken = b'{"output":"old","big":12345678901234567890123,"error":"mine"}'
    job.add(answered(A), answered(taken), broken(B))

    job.merge(inputs(A, taken, B, C), "flat")

    first, second, third, fourth = job.lines()
    assert first == {"text": "a", "output": "yes"}
    assert second == {"big": 12345678901234567890123, "error": "mine", "output": "yes"}
    assert third["output"] is None
    assert isinstance(third["error"], dict)
    assert third["error"]["class"] == "timeout"
    assert fourth == {"text": "c", "output": None, "error": PENDING_ERROR}


def test_openai_batch_lines_hold_the_whole_reply(job: Job) -> None:
    body = b'{"id":"chatcmpl-1","object":"chat.completion","choices":[]}'
    job.add(structs.replace(answered(A), response=body), broken(B, "late"))
    named: list[InputLine] = [
        (0, "task-0", key_of(A), A),
        (1, 7, key_of(B), B),
        *inputs(A, B, C)[2:],
    ]

    job.merge(named, "openai-batch")

    assert job.lines() == [
        {
            "id": "batch_req_0",
            "custom_id": "task-0",
            "response": {"status_code": 200, "request_id": "req-1", "body": json.loads(body)},
            "error": None,
        },
        {
            "id": "batch_req_1",
            "custom_id": "7",
            "response": None,
            "error": {"code": "timeout", "message": "late"},
        },
        {
            "id": "batch_req_2",
            "custom_id": "row-2",
            "response": None,
            "error": {"code": "pending", "message": "not done yet"},
        },
    ]


def test_openai_batch_without_kept_replies_is_refused_and_nothing_is_written(job: Job) -> None:
    job.results.write_bytes(b"old\n")
    job.add(answered(A))

    with pytest.raises(ConfigError, match="include_response = true"):
        job.merge(inputs(A), "openai-batch")

    assert job.results.read_bytes() == b"old\n"
    assert {path.name for path in job.results.parent.iterdir()} == {
        "j.results.jsonl",
        "j.success.jsonl",
    }


def test_an_input_that_breaks_off_leaves_the_old_results(job: Job) -> None:
    job.results.write_bytes(b"old\n")

    def torn() -> Iterator[InputLine]:
        yield from inputs(A)
        raise CannotCreateError

    with pytest.raises(CannotCreateError):
        job.merge(torn())

    assert job.results.read_bytes() == b"old\n"


def test_a_torn_tail_is_passed_over_and_damage_in_the_middle_is_refused(job: Job) -> None:
    job.add(answered(A))
    with job.success.open("ab") as sidecar:
        sidecar.write(encode(answered(B))[:-20])
    assert job.merge(inputs(A, B)).pending == 1

    job.add(answered(C), answered(C))

    with pytest.raises(DamagedJournalError):
        job.merge(inputs(A, B))


def test_a_job_without_sidecars_is_all_pending(job: Job) -> None:
    assert job.merge(inputs(A, B)) == MergeCounts(2, 0, 0, 2, 0)


def test_results_can_go_to_a_stream(job: Job) -> None:
    job.add(answered(A))
    stream = io.BytesIO()

    merge(inputs(A), job.success, job.failure, stream)

    assert json.loads(stream.getvalue())["output"] == "yes"
    assert not job.results.exists()


def test_the_files_are_closed_even_when_the_merge_fails(job: Job) -> None:
    job.add(answered(A), broken(B))
    before = len(list(Path("/dev/fd").iterdir()))

    with pytest.raises(ConfigError):
        job.merge(inputs(A, B), "openai-batch")

    assert len(list(Path("/dev/fd").iterdir())) == before


RAWS = st.sampled_from([A, B, C, b'{"text":"d"}', b"broken", b""])
OUTCOMES = st.builds(lambda raw, n: answered(raw, b"%d" % n), RAWS, st.integers(0, 99)) | st.builds(
    lambda raw, n: broken(raw, str(n)), RAWS, st.integers(0, 99)
)


@given(st.lists(RAWS, max_size=12), st.lists(OUTCOMES, max_size=20))
def test_every_input_line_has_one_result_and_the_rows_add_up(
    tmp_path_factory: pytest.TempPathFactory, raws: list[bytes], outcomes: list[Outcome]
) -> None:
    job = Job(tmp_path_factory.mktemp("merge"))
    job.add(*outcomes)

    counts = job.merge(inputs(*raws))

    assert [line["row"] for line in job.lines()] == list(range(len(raws)))
    assert counts.rows == len(raws) == counts.succeeded + counts.failed + counts.pending
    for raw in set(raws):
        mine = [line for line, other in zip(job.lines(), raws, strict=True) if other == raw]
        won = [o for o in outcomes if isinstance(o, Success) and o.key == key_of(raw)]
        lost = [o for o in outcomes if isinstance(o, Failure) and o.key == key_of(raw)]
        outputs = [line["output"] for line in mine if line["error"] is None]
        assert outputs == [json.loads(o.answer.output) for o in won[: len(mine)]]
        said = {json.dumps(line["error"]) for line in mine if line["error"] is not None}
        assert len(said) <= 1
        if said and lost:
            assert json.loads(said.pop())["message"] == lost[-1].problem.message
    assert job.problems(inputs(*raws)) == []


# ── verify ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def merged(job: Job) -> Job:
    job.add(answered(A), broken(B))
    job.merge(inputs(A, B, C))
    return job


def test_a_merged_job_is_proved(merged: Job) -> None:
    proof = verify(inputs(A, B, C), merged.success, merged.failure, merged.results)

    assert proof.problems == []
    assert proof.checked
    assert proof.counts == MergeCounts(3, 1, 1, 1, 0)


def test_without_results_the_sidecars_are_still_counted(job: Job) -> None:
    job.add(answered(A))

    proof = verify(inputs(A, B), job.success, job.failure, job.results)

    assert (proof.checked, proof.problems) == (False, [])
    assert proof.counts == MergeCounts(2, 1, 0, 1, 0)


def forge(job: Job, old: bytes, new: bytes) -> None:
    text = job.results.read_bytes()
    assert old in text
    job.results.write_bytes(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'"yes"', b'"no"', "row 0: its output is not that of its record"),
        (b'"yes"', b"null", "row 0: its output is not that of its record"),
        (b'"text":"b"', b'"text":"x"', "row 1: its line has another input"),
        (b'"class":"timeout"', b'"class":"schema"', "row 1: its error is not that of its record"),
        (b'{"row":2,', b'{"row":3,', "row 2: its line is that of row 3"),
        (b'"id":null', b'"id":5', "row 0: its line has another id"),
        (b'{"row":1', b"[", "row 1: its line is not a line of results"),
        (b"null}\n{", b"null{", "row 0: its line is not a line of results"),
    ],
)
def test_a_forged_line_is_named(merged: Job, old: bytes, new: bytes, problem: str) -> None:
    text = merged.results.read_bytes().replace(b'"reasoning":5}}', b'"reasoning":5},"x":null}')
    merged.results.write_bytes(text)

    forge(merged, old, new)

    assert merged.problems(inputs(A, B, C))[0] == problem


def test_missing_doubled_and_cut_lines_are_named(merged: Job) -> None:
    whole = merged.results.read_bytes().splitlines(keepends=True)

    merged.results.write_bytes(b"".join(whole[:2]))
    assert merged.problems(inputs(A, B, C)) == ["row 2: the results end before it"]

    merged.results.write_bytes(b"".join([*whole, whole[2]]))
    assert merged.problems(inputs(A, B, C)) == ["lines of results after the last row's: 1"]

    merged.results.write_bytes(b"".join(whole)[:-1])
    assert merged.problems(inputs(A, B, C)) == ["row 2: its line is cut short"]


def test_results_older_than_the_sidecars_are_found_out(merged: Job) -> None:
    merged.add(answered(B))

    assert merged.problems(inputs(A, B, C)) == ["row 1: its output is not that of its record"]


def test_problems_are_named_up_to_a_bound_and_counted_beyond(job: Job) -> None:
    job.results.write_bytes(b"{}\n" * 100)

    problems = job.problems(inputs(*[A] * 100))

    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == f"and {100 - MAX_PROBLEMS} more"


def test_memory_is_an_index_and_not_the_records(job: Job) -> None:
    raws = [b'{"n":%d}' % n for n in range(2_000)]
    big = b'"' + b"x" * 2_000 + b'"'
    job.success.write_bytes(b"".join(encode(answered(raw, big)) for raw in raws))

    with Records(job.success, job.failure) as records:
        kept = sum(len(bucket) for bucket in records._answers._buckets.values())
        assert kept <= 20 * len(raws)
        assert all(big in (records.take(key_of(raw)) or b"") for raw in reversed(raws))
