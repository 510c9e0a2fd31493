"""The sample data: what its README promises, and what the demo builds on."""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

SAMPLES: Final = Path(__file__).parent.parent / "sample_data"
RAW: Final = (SAMPLES / "reviews.jsonl").read_bytes()
ROWS: Final[list[dict[str, Any]]] = [json.loads(line) for line in RAW.splitlines()]
TEXTS: Final[list[str]] = [row["text"] for row in ROWS]


def test_there_are_240_rows_and_their_ids_count_them() -> None:
    assert [row["id"] for row in ROWS] == [f"r{number:03d}" for number in range(1, 241)]


def test_each_row_has_the_documented_fields_and_no_other() -> None:
    for row in ROWS:
        assert {name: type(value) for name, value in row.items()} == {
            "id": str,
            "lang": str,
            "product": str,
            "stars": int,
            "text": str,
        }
        assert 1 <= row["stars"] <= 5
        assert row["product"].strip() == row["product"] != ""


def test_the_file_is_utf8_with_lf_line_ends_and_nothing_escaped_in_vain() -> None:
    text = RAW.decode("utf-8")

    assert RAW.endswith(b"}\n")
    assert b"\r" not in RAW
    assert not RAW.startswith(b"\xef\xbb\xbf")
    assert text == "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def test_no_two_reviews_are_alike() -> None:
    bare = Counter("".join(filter(str.isalnum, text.casefold())) for text in TEXTS)
    openings = Counter(text[:16] for text in TEXTS)

    assert bare.most_common(1)[0][1] == 1
    assert openings.most_common(1)[0][1] == 1


def test_many_languages_are_there_and_the_readme_counts_them_right() -> None:
    count = Counter(row["lang"] for row in ROWS)
    readme = (SAMPLES / "README.md").read_text(encoding="utf-8")

    assert len(count) == 12
    assert count["ja"] >= 50
    assert f"{len(ROWS)} short reviews" in readme
    assert f"{count['en']} are in English, {count['ja']} in Japanese" in readme


@pytest.mark.parametrize(
    ("lang", "first", "last"),
    [
        ("ja", "\u3041", "\u30ff"),
        ("zh", "\u4e00", "\u9fff"),
        ("ko", "\uac00", "\ud7a3"),
        ("ar", "\u0600", "\u06ff"),
        ("hi", "\u0900", "\u097f"),
        ("ru", "\u0400", "\u04ff"),
    ],
)
def test_a_text_is_in_the_script_of_its_language(lang: str, first: str, last: str) -> None:
    texts = [row["text"] for row in ROWS if row["lang"] == lang]

    assert texts
    assert all(any(first <= char <= last for char in text) for text in texts)


def test_lengths_vary_from_a_few_characters_to_a_long_story() -> None:
    lengths = sorted(map(len, TEXTS))

    assert 10 <= lengths[0] < 20
    assert 600 < lengths[-1] <= 900
    assert len(set(lengths)) > 100


@pytest.mark.parametrize("what", ["\n", '"', "\\", "/", "\u2026", "\U0001f419"])
def test_characters_that_careless_programs_stumble_over_are_there(what: str) -> None:
    assert any(what in text for text in TEXTS)


def test_every_rating_is_given() -> None:
    assert {row["stars"] for row in ROWS} == {1, 2, 3, 4, 5}


def test_the_demo_is_a_sound_posix_script() -> None:
    done = subprocess.run(
        ["/bin/sh", "-n", str(SAMPLES / "demo.sh")], capture_output=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, b"")
