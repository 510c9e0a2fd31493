"""Loading a configuration: precedence, and what is said of every mistake."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from batchinfer.config.fingerprint import fingerprint, public
from batchinfer.config.load import load
from batchinfer.config.schema import Config, Price
from batchinfer.config.shape import field_paths
from batchinfer.errors import ConfigError, Exit

CONFIGS: Final = sorted((Path(__file__).parent.parent / "configs").glob("*.toml"))
SIMULATED: Final = "endpoint.provider = 'simulated'\nsimulate.api = 'openai-completions'\n"
DIALOGUE: Final = "[request]\nmessages = [{role = 'user', content = 'b'}]"
LOCAL: Final = '[endpoint]\nbase_url = "http://127.0.0.1:8000/v1"\nmodel = "m"\n'


def _load(
    text: str | bytes = LOCAL,
    sets: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    base: str | Mapping[str, object] | None = None,
) -> Config:
    data = text.encode() if isinstance(text, str) else text
    return load("job.toml", sets, flags or {}, env or {}, lambda _: data, base)


def _refusal(
    text: str | bytes = LOCAL,
    sets: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    base: str | Mapping[str, object] | None = None,
) -> str:
    with pytest.raises(ConfigError) as caught:
        _load(text, sets, flags, env, base)

    assert caught.value.exit_code is Exit.CONFIG
    return str(caught.value)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_configuration_loads_with_an_endpoint_and_a_template(path: Path) -> None:
    config = load(str(path), [], {}, {}, lambda name: Path(name).read_bytes())

    assert config.endpoint is not None
    assert config.request.prompt


def test_a_configuration_is_shipped_for_each_way_to_serve() -> None:
    shipped = {path.stem for path in CONFIGS}

    assert shipped >= {"demo", "openai", "vllm", "llama-cpp", "ollama", "openrouter"}
    assert shipped >= {"embeddings", "completions"}


def test_flags_come_before_sets_before_the_file_before_the_preset_before_the_default() -> None:
    text = "[limits]\nrpm = 1\ntpm = 1\nconcurrency = 1\n[endpoint]\nmodel = 'file'\n"
    config = _load(
        text, ["limits.rpm=2", "limits.tpm=2"], {"limits.rpm": 3, "limits.tpm": None}, {}, "ollama"
    )

    assert config.endpoint is not None
    assert config.endpoint.base_url == "http://127.0.0.1:11434/v1"
    assert config.endpoint.model == "file"
    assert (config.limits.rpm, config.limits.tpm, config.limits.concurrency) == (3, 2, 1)
    assert config.retry.attempts == 5


def test_a_set_reaches_a_field_of_a_quoted_name() -> None:
    config = _load(sets=['prices."my-model".input=1', 'prices."my-model".cached=0.5'])

    assert config.prices == {"my-model": Price(input=1, cached=0.5)}


def test_parameters_of_several_layers_are_joined() -> None:
    config = _load(
        LOCAL + "[request.params]\ntemperature = 0.5\nstop = ['a']\n",
        ["request.params.temperature=0"],
        {"request.params.max_tokens": 5},
    )

    assert config.request.params == {"temperature": 0, "stop": ["a"], "max_tokens": 5}


def test_an_endpoint_may_be_written_as_a_list_of_one() -> None:
    assert _load(LOCAL.replace("[endpoint]", "[[endpoint]]")) == _load(LOCAL)


def test_a_file_may_begin_with_a_byte_order_mark_and_end_its_lines_as_windows_does() -> None:
    assert _load(b"\xef\xbb\xbf" + LOCAL.replace("\n", "\r\n").encode()) == _load(LOCAL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\nrpmm = 5", "limits.rpmm (job.toml): not a field; did you mean limits.rpm?"),
        ("[limit]\nrpm = 5", "limit (job.toml): not a field; did you mean limits"),
        ("[retry]\nrpm = 5", "retry.rpm (job.toml): not a field; did you mean limits.rpm?"),
        ("[endpoint]\nzzz = 5", "endpoint.zzz (job.toml): not a field"),
        ("temperature = 1", "temperature (job.toml): not a field; parameters of the request go"),
        ('[prices.m]\ninput = 1\n"ou t" = 2', 'prices.m."ou t" (job.toml): not a field; did you'),
        ("[prices.m]\noutput = 1", "prices.m.input: missing, expected a number >= 0"),
        ("limits = 5", "limits (job.toml): found 5, expected a table"),
        ("prices = 5", "prices (job.toml): found 5, expected a table"),
        ("endpoint = [1]", "endpoint (job.toml): found 1, expected a table"),
        ("endpoint = []", "endpoint (job.toml): found a list, expected a table"),
        ('[limits]\nrpm = "x"', 'limits.rpm (job.toml): found "x", expected a number > 0'),
        ("[limits]\nrpm = true", "limits.rpm (job.toml): found true, expected a number > 0"),
        ("[limits]\nrpm = inf", "limits.rpm (job.toml): found inf, expected a number > 0"),
        ("[limits]\nrpm = nan", "limits.rpm (job.toml): found nan, expected a number > 0"),
        ("[limits]\nconcurrency = 0", 'found 0, expected a whole number >= 1 or "auto"'),
        ('[limits]\nconcurrency = "max"', 'found "max", expected a whole number >= 1 or "auto"'),
        ("[retry]\nattempts = 1.5", "found 1.5, expected a whole number >= 1"),
        ("[simulate]\njitter = 2", "found 2, expected a number >= 0 and <= 1"),
        (f"[simulate]\nseed = {2**63}", "simulate.seed (job.toml): found 92233"),
        ("[output]\ninclude_response = 1", "found 1, expected true or false"),
        ("[request]\nprompt = 1979-05-27", "found a date or a time, expected text"),
        ("[request]\nmessages = {}", "request.messages (job.toml): found a table, expected a list"),
        ("[request]\nmessages = [{role = 'user'}]", "request.messages.0.content (job.toml): miss"),
        ("[request]\nparams = [1]", "request.params (job.toml): found a list, expected a table"),
        ("[request.params]\na = [nan]", "request.params.a.0 (job.toml): found nan, expected what"),
        ("[request.params]\na = {b = 07:32:00}", "request.params.a.b (job.toml): found a date or"),
        ('[endpoint]\nprovider = "opnai"', 'provider (job.toml): found "opnai", expected one of'),
    ],
)
def test_a_mistake_is_told_with_path_place_found_and_expected(text: str, said: str) -> None:
    assert said in _refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "[pack]\nsize = 1",
        "[validate]\njson_schema = 's.json'",
        "[endpoint]\nprovider = 'anthropic'",
        "[[endpoint]]\nmodel = 'a'\n[[endpoint]]\nmodel = 'b'",
    ],
)
def test_what_comes_later_is_told_from_what_does_not_exist(text: str) -> None:
    said = _refusal(text)

    assert "not available in this version" in said
    assert "not a field" not in said


def test_a_mistake_names_the_layer_that_made_it() -> None:
    said = _refusal(LOCAL, ["limits.rpm=a"], {"limits.tpm": -1})

    assert said.startswith("2 mistakes in the configuration:\n")
    assert 'limits.rpm (--set): found "a"' in said
    assert "limits.tpm (flag): found -1" in said


def test_many_mistakes_are_cut_to_a_screen() -> None:
    said = _refusal("".join(f"x{number} = 1\n" for number in range(50)))

    assert said.startswith("50 mistakes")
    assert said.count("\n") == 21
    assert said.endswith("and 30 more")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\nb = = 2", "job.toml: not valid TOML: Invalid value (at line 2"),
        ("a = '''\n\n", "at the end, line 3"),
        ("a = 1\na = 2", "job.toml: not valid TOML: "),
        (b"a = 1\nb = '\xff'", "job.toml: line 2 is not UTF-8 text"),
        ("a = " + "9" * 5000, "job.toml: not valid TOML: "),
        ("a = " + "[" * 5000, "job.toml: not valid TOML: "),
    ],
)
def test_a_file_that_is_no_toml_is_refused_with_its_name_and_line(
    text: str | bytes, said: str
) -> None:
    assert said in _refusal(text)


@pytest.mark.parametrize("name", ["missing.toml", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_a_configuration_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load(f"{tmp_path}/{name}", [], {}, {}, lambda path: Path(path).read_bytes())


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load("nowhere.toml", [], {}, {}, lambda path: Path(path).read_bytes())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            LOCAL + "[request]\nprompt = 'a'\nmessages = [{role = 'user', content = 'b'}]",
            "request.prompt (job.toml): excludes request.messages",
        ),
        (LOCAL + "api_key_env = 'A'\napi_key_file = 'f'", "excludes endpoint.api_key_file"),
        (LOCAL + "[retry]\nbase = 5\ncap = 1", "retry.cap (job.toml): 1 is less than retry.base"),
        (LOCAL.replace("http:", "ftp:"), "endpoint.base_url (job.toml): must begin with http"),
        (LOCAL.replace("127", "u:PASSWORD@127"), "must hold no user or password"),
        (LOCAL + "headers = {X-a = '1', x-A = '2'}", "given twice"),
        (LOCAL + "api_key_env = 'A'\nheaders = {authorization = 'b'}", "excludes an API key"),
        (
            LOCAL.replace('model = "m"', "") + "[request]\nprompt = 'a'",
            "endpoint.model: missing",
        ),
        (
            LOCAL + "provider = 'openai-embeddings'\n" + DIALOGUE,
            "openai-embeddings takes request.prompt",
        ),
        (
            SIMULATED + DIALOGUE,
            "openai-completions takes request.prompt",
        ),
    ],
)
def test_a_contradiction_is_refused(text: str, said: str) -> None:
    refusal = _refusal(text)

    assert said in refusal
    assert "PASSWORD" not in refusal


def test_rows_that_name_their_own_model_need_none_in_the_configuration() -> None:
    config = _load(LOCAL.replace('model = "m"', ""))

    assert config.endpoint is not None
    assert config.endpoint.model is None


def test_a_configuration_is_rehearsed_with_the_simulator_by_one_set() -> None:
    for path in CONFIGS:
        text = path.read_text(encoding="utf-8")
        assert _load(text, ["endpoint.provider=simulated"]).endpoint is not None


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_what_a_run_wrote_down_is_loaded_as_it_was(path: Path) -> None:
    config = _load(path.read_bytes())
    again = load(None, [], {}, {}, lambda _: b"", base=json.decode(json.encode(public(config))))

    assert again == config
    assert fingerprint(again) == fingerprint(config)


def test_what_a_run_wrote_down_is_the_lowest_layer() -> None:
    stored = public(_load(LOCAL + "[limits]\nrpm = 1\ntpm = 1"))
    config = _load("[limits]\nrpm = 2", ["request.prompt=p"], {}, {}, stored)

    assert (config.limits.rpm, config.limits.tpm, config.request.prompt) == (2, 1, "p")


@pytest.mark.parametrize(
    "changed", [{"headers": {"X-A": "SECRET"}}, {"base_url": "https://h/v1?key=SECRET"}]
)
def test_a_run_is_not_continued_with_a_value_that_was_not_kept(changed: dict[str, object]) -> None:
    stored = public(_load(flags={f"endpoint.{name}": value for name, value in changed.items()}))
    said = _refusal("", base=stored)

    assert f"endpoint.{next(iter(changed))} (the earlier run): " in said
    assert "--config" in said
    assert "SECRET" not in said


def test_a_flag_replaces_the_other_way_to_say_it_in_the_file() -> None:
    text = LOCAL + DIALOGUE

    assert _load(text, flags={"request.prompt": "p"}).request.messages == []


@pytest.mark.parametrize(
    "text",
    [
        LOCAL + "api_key = 'sk-SECRET'",
        LOCAL + "token = 'sk-SECRET'",
        LOCAL + "headers = 'sk-SECRET'",
        LOCAL + "api_key_env = ['sk-SECRET']",
        LOCAL + "allow_insecure_http = 'sk-SECRET'",
        LOCAL + "headers = {x = 1, y = ['sk-SECRET']}",
        LOCAL + "api_key = sk-SECRET",
        LOCAL.replace("127.0.0.1:8000", "sk-SECRET@host"),
        LOCAL.replace("http://", "sk-SECRET"),
    ],
)
def test_a_key_in_the_wrong_place_is_refused_and_never_repeated(text: str) -> None:
    assert "SECRET" not in _refusal(text)


def test_a_key_in_the_configuration_is_answered_with_the_right_place_for_it() -> None:
    assert "endpoint.api_key_env" in _refusal(LOCAL + "api_key = 'sk-SECRET'")


def test_a_prompt_is_not_searched_for_environment_variables() -> None:
    text = LOCAL + "[request]\nprompt = 'is ${env:HOME} {{ x }}'"

    assert _load(text, env={"HOME": "/root"}).request.prompt == "is ${env:HOME} {{ x }}"


def test_the_address_is_checked_with_its_variables_filled_in_but_kept_without() -> None:
    text = LOCAL.replace("127.0.0.1", "${env:GPU}")
    config = _load(text, env={"GPU": "box"})

    assert config.endpoint is not None
    assert config.endpoint.base_url == "http://${env:GPU}:8000/v1"
    assert "must hold no user" in _refusal(text, env={"GPU": "u:p@box"})
    assert "environment variable GPU is not set" in _refusal(text)


def test_text_that_no_file_can_hold_is_refused_wherever_it_comes_from() -> None:
    broken = "\udcff"

    assert "request.prompt" in _refusal(sets=[f"request.prompt={broken}"])
    assert "request.params.a" in _refusal(flags={"request.params.a": broken})


@given(
    path=st.sampled_from(list(field_paths())),
    value=st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.lists(st.integers(), max_size=2),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    ),
)
def test_any_value_in_any_field_is_taken_or_refused_by_name(
    path: tuple[str, ...], value: object
) -> None:
    try:
        config = _load(flags={".".join(path): value})
    except ConfigError as error:
        assert path[-1] in str(error)  # noqa: PT017 - either end is right
    else:
        assert isinstance(config, Config)
