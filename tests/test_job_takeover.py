import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import a_success
from msgspec import structs

from batchinfer.config.schema import Config, Endpoint, Limits, RequestTemplate
from batchinfer.dispatch.scribe import GROUP
from batchinfer.errors import DamagedJournalError, FingerprintError, LockedError
from batchinfer.job.takeover import RUNNING, begin, identity, open_journal, set_aside
from batchinfer.job.target import Target, target_of
from batchinfer.job.wiring import MOST_IN_FLIGHT
from batchinfer.journal.manifest import read, write
from batchinfer.journal.record import encode

CONFIG = Config(
    endpoint=Endpoint(base_url="http://host/v1?key=sk-secret", model="m"),
    limits=Limits(concurrency=8),
)
Said = list[str]


@pytest.fixture
def target(tmp_path: Path) -> Target:
    (tmp_path / "in.jsonl").write_bytes(b'{"prompt":"a"}\n')
    return target_of(str(tmp_path / "in.jsonl"), None)


@pytest.fixture
def said() -> Said:
    return []


def ended(target: Target, how: str, **changes: Any) -> None:
    manifest = read(target.paths.manifest)
    assert manifest is not None
    write(target.paths.manifest, structs.replace(manifest, ended=how, **changes))


def test_a_first_run_writes_what_is_run_on_what_and_no_secret(target: Target, said: Said) -> None:
    before, manifest = begin(target, CONFIG, said.append)

    assert before is None
    assert read(target.paths.manifest) == manifest
    assert (manifest.ended, manifest.concurrency, manifest.pid) == (RUNNING, 8, os.getpid())
    assert manifest.input == identity(target)
    assert b"sk-secret" not in target.paths.manifest.read_bytes()
    assert said == []


def test_the_input_is_known_by_path_size_and_time(target: Target, tmp_path: Path) -> None:
    status = (tmp_path / "in.jsonl").stat()

    found = identity(target)

    assert found.path == str((tmp_path / "in.jsonl").resolve())
    assert (found.size, found.mtime_ns) == (status.st_size, status.st_mtime_ns)


def test_a_streamed_input_is_known_by_its_copy_alone(tmp_path: Path) -> None:
    found = identity(target_of("-", str(tmp_path / "out")))

    assert found.path == str(tmp_path / "out.input.jsonl")
    assert (found.size, found.mtime_ns) == (None, None)


def test_a_run_of_the_same_configuration_continues_and_adds_up(target: Target, said: Said) -> None:
    _, first = begin(target, CONFIG, said.append)
    ended(target, "partial", elapsed_s=12.0, possibly_rebilled=3)

    before, second = begin(target, CONFIG, said.append)

    assert before is not None
    assert before.run_id == first.run_id != second.run_id
    assert (second.elapsed_s, second.possibly_rebilled) == (12.0, 3)
    assert said == []


def test_a_run_that_was_killed_says_how_much_may_be_paid_again(target: Target, said: Said) -> None:
    begin(target, CONFIG, said.append)
    ended(target, RUNNING, possibly_rebilled=5)

    _, manifest = begin(target, CONFIG, said.append)

    assert manifest.possibly_rebilled == 5 + 8 + GROUP
    assert said == [
        (
            f"the last run was killed: at most {8 + GROUP} rows that were under way then"
            " may be sent, and billed, a second time"
        )
    ]


@pytest.mark.parametrize("place", ["success", "failure"])
def test_another_configuration_is_refused_where_there_are_answers(
    target: Target, said: Said, place: str
) -> None:
    begin(target, CONFIG, said.append)
    ended(target, "finished")
    getattr(target.paths, place).write_bytes(encode(a_success(0)))
    kept = target.paths.manifest.read_bytes()
    other = structs.replace(CONFIG, request=RequestTemplate(prompt="{{ x }}"))

    with pytest.raises(FingerprintError, match=r"another configuration \(.*prompt.*--fresh"):
        begin(target, other, said.append)

    assert target.paths.manifest.read_bytes() == kept


def test_another_configuration_may_take_over_where_there_are_none(
    target: Target, said: Said
) -> None:
    _, first = begin(target, CONFIG, said.append)
    ended(target, "partial")
    target.paths.success.touch()
    other = structs.replace(CONFIG, request=RequestTemplate(prompt="{{ x }}"))

    _, second = begin(target, other, said.append)

    assert second.fingerprint != first.fingerprint


def test_a_configuration_that_differs_in_what_no_one_can_name_is_refused_all_the_same(
    target: Target, said: Said
) -> None:
    begin(target, CONFIG, said.append)
    ended(target, "finished", fingerprint="f" * 32)
    target.paths.success.write_bytes(encode(a_success(0)))

    with pytest.raises(FingerprintError, match=r"\(the configuration\)"):
        begin(target, CONFIG, said.append)


def test_another_pace_is_the_same_job(target: Target, said: Said) -> None:
    begin(target, CONFIG, said.append)
    ended(target, "partial")
    target.paths.success.write_bytes(encode(a_success(0)))

    _, manifest = begin(target, structs.replace(CONFIG, limits=Limits(rpm=5.0)), said.append)

    assert manifest.concurrency == MOST_IN_FLIGHT


def test_answers_without_a_manifest_are_nobodys(target: Target, said: Said) -> None:
    target.paths.success.write_bytes(encode(a_success(0)))

    with pytest.raises(FingerprintError, match=r"in\.run\.json, which says .* is missing"):
        begin(target, CONFIG, said.append)

    assert not target.paths.manifest.exists()


def test_earlier_files_are_set_aside_and_not_deleted(target: Target, said: Said) -> None:
    kept = {"success": b"a\n", "failure": b"b\n", "results": b"c\n"}
    for name, content in kept.items():
        getattr(target.paths, name).write_bytes(content)

    set_aside(target, said.append)

    for name, content in kept.items():
        path = getattr(target.paths, name)
        assert not path.exists()
        [moved] = path.parent.glob(f"{path.name}.old-*")
        assert moved.read_bytes() == content
    [sentence] = said
    assert "in.success.jsonl.old-" in sentence


def test_where_there_is_nothing_nothing_is_set_aside(target: Target, said: Said) -> None:
    set_aside(target, said.append)

    assert said == []


# ── the journal ──────────────────────────────────────────────────────────────────────────────


def test_a_journal_is_opened_healed_and_said_so(target: Target, said: Said) -> None:
    line = encode(a_success(0))
    target.paths.success.write_bytes(line + line[:30])

    with open_journal(target, said.append, fresh=False, mend=False) as journal:
        assert journal.healed == 30

    assert target.paths.success.read_bytes() == line
    assert said == ["a record torn by a crash (30 bytes) was removed"]


def test_a_journal_in_use_is_refused_with_its_holder(target: Target, said: Said) -> None:
    begin(target, CONFIG, said.append)

    with (
        open_journal(target, said.append, fresh=False, mend=False),
        pytest.raises(LockedError, match=f"process {os.getpid()} on "),
        open_journal(target, said.append, fresh=True, mend=False),
    ):
        pytest.fail("it was opened twice")

    assert list(target.paths.success.parent.glob("*.old-*")) == []


def test_a_fresh_start_begins_with_empty_sidecars(target: Target, said: Said) -> None:
    begin(target, CONFIG, said.append)
    target.paths.success.write_bytes(encode(a_success(0)))

    with open_journal(target, said.append, fresh=True, mend=False):
        assert target.paths.success.read_bytes() == b""
        assert not target.paths.manifest.exists()

    assert len(list(target.paths.success.parent.glob("*.old-*"))) == 3


def test_damage_is_moved_out_on_request_only(target: Target, said: Said) -> None:
    lines = [encode(a_success(row)) for row in range(3)]
    target.paths.success.write_bytes(lines[0] + b"rubbish\n" + lines[2])

    with open_journal(target, said.append, fresh=False, mend=True) as journal:
        assert journal.healed == 0

    assert target.paths.success.read_bytes() == lines[0] + lines[2]
    assert said == [
        (
            "repaired: 1 success and 0 failure records were damaged; 1 rows will be sent, and"
            " billed, again"
        )
    ]


def test_a_foreign_file_under_the_journals_name_is_left_alone(target: Target, said: Said) -> None:
    target.paths.success.write_bytes(b"my own notes\n")

    with (
        pytest.raises(DamagedJournalError, match="not a sidecar"),
        open_journal(target, said.append, fresh=False, mend=False),
    ):
        pytest.fail("it was opened")

    assert target.paths.success.read_bytes() == b"my own notes\n"


def test_the_manifest_is_json_with_the_whole_public_configuration(
    target: Target, said: Said
) -> None:
    begin(target, CONFIG, said.append)

    config = msgspec.json.decode(target.paths.manifest.read_bytes())["config"]

    assert config["endpoint"]["model"] == "m"
    assert config["limits"]["concurrency"] == 8
