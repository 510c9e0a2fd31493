import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.flow.climb import Bounds
from batchinfer.flow.serverload import STALE, Load, ServerLoad, parse_metrics

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B"} 96.0
vllm:num_requests_running{engine="1",model_name="meta-llama/Llama-3.1-8B"} 1.28e+02
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="meta-llama/Llama-3.1-8B"} 3.0
vllm:num_requests_waiting{engine="1",model_name="meta-llama/Llama-3.1-8B"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="meta-llama/Llama-3.1-8B"} 0.75
vllm:iteration_tokens_total_bucket{le="1.0",model_name="meta-llama/Llama-3.1-8B"} 7.0
"""
LLAMACPP = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 226
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 12
"""
SGLANG = """\
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 162.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2826.0
"""
SIMULATED = "simulated_slots 16\nsimulated_running 9\nsimulated_waiting 0\n"


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (VLLM, Load(224, 3, 0.75)),
        (VLLM.replace("kv_cache", "gpu_cache"), Load(224, 3, 0.75)),
        (VLLM.replace("\n", " 1700000000000\n"), Load(224, 3, 0.75)),
        (VLLM.replace("\n", "\r\n"), Load(224, 3, 0.75)),
        (VLLM.replace("meta-llama/", "a } b{ "), Load(224, 3, 0.75)),
        (LLAMACPP, Load(4, 12)),
        (SGLANG, Load(162, 2826, 0.28)),
        (SIMULATED, Load(9, 0, None, 16)),
    ],
)
def test_the_gauges_of_known_servers_are_read(text: str, load: Load) -> None:
    assert parse_metrics(text) == load


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>not found</html>",
        '{"detail": "Not Found"}',
        "process_cpu_seconds_total 4.2\n",
        "vllm:num_requests_running 4\n",
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting 1\n",
        "vllm:num_requests_running{} \nvllm:num_requests_waiting x\n",
        "vllm:num_requests_running -1\nvllm:num_requests_waiting 1\n",
    ],
)
def test_other_text_is_no_load(text: str) -> None:
    assert parse_metrics(text) is None


@given(st.text(alphabet='vllm:num_requests_runningwaiting{}"= 0123.\n', max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    load = parse_metrics(VLLM + text)

    assert load is not None
    assert load.running >= 224


def bounds(*loads: Load, in_flight: int, most: int = 1024) -> Bounds:
    server = ServerLoad(1, most)
    for second, load in enumerate(loads):
        server.observe(float(second), load, in_flight)
    return server.bounds(float(len(loads)))


def test_a_long_queue_is_brought_down_to_an_eighth_of_what_runs() -> None:
    assert bounds(Load(256, 100), in_flight=356).roof == 356 - (100 - 31)


def test_a_small_queue_is_kept_and_no_slot_left_idle() -> None:
    assert bounds(Load(100, 5), in_flight=105) == Bounds(101, 112)
    assert bounds(Load(4, 1), in_flight=5) == Bounds(5, 6)


def test_a_queue_that_one_look_shows_and_the_last_did_not_is_no_queue() -> None:
    assert bounds(Load(100, 0), Load(100, 60), in_flight=160).roof == 1024
    assert bounds(Load(100, 50), Load(100, 60), in_flight=160).roof == 160 - (50 - 12)


def test_without_a_queue_nothing_is_bounded() -> None:
    assert bounds(Load(40, 0), in_flight=40) == Bounds(1, 1024)


def test_a_queue_once_seen_is_remembered() -> None:
    seen = Load(64, 20)

    assert bounds(seen, Load(60, 0), in_flight=60) == Bounds(65, 72)


def test_free_slots_are_filled_where_their_number_is_known() -> None:
    assert bounds(Load(8, 0, slots=32), in_flight=8) == Bounds(33, 34)


def test_a_full_cache_lets_nothing_grow() -> None:
    assert bounds(Load(200, 0, cache=0.97), in_flight=200) == Bounds(1, 200)


def test_those_who_share_a_server_give_way_each_by_its_share() -> None:
    alone = bounds(Load(100, 112), in_flight=212)
    half = bounds(Load(100, 112), in_flight=106)

    assert alone.roof == 212 - 100
    assert half.roof == 106 - 50


def test_an_old_look_says_nothing() -> None:
    server = ServerLoad(2, 50)
    server.observe(0.0, Load(4, 100), 40)

    assert server.bounds(STALE - 0.1).roof < 40
    assert server.bounds(STALE) == Bounds(2, 50)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3000),
            st.integers(0, 3000),
            st.none() | st.floats(0, 1),
            st.none() | st.integers(1, 500),
            st.integers(0, 2000),
        )
    )
)
def test_the_bounds_are_in_order_and_within_the_users(
    looks: list[tuple[int, int, float | None, int | None, int]],
) -> None:
    server = ServerLoad(2, 500)
    for second, (running, waiting, cache, slots, in_flight) in enumerate(looks):
        server.observe(float(second), Load(running, waiting, cache, slots), in_flight)
        now = server.bounds(float(second))

        assert 2 <= now.floor <= now.roof <= 500
