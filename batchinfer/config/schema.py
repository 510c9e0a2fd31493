"""The shape of a job's configuration: frozen values with their defaults and units.

Owns: names, types, defaults, the meaning of each field (its comment is its documentation in
`batchinfer init` and in the JSON Schema). Refuses to know: TOML, environment, flags, files.
A secret never stands in these values: only the name of the variable or file that holds it.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]

ProviderName = Literal["openai-chat", "openai-completions", "openai-embeddings", "simulated"]


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the requests go."""

    provider: ProviderName = "openai-chat"
    base_url: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    headers: dict[str, str] = {}
    transport: Literal["auto", "pyreqwest", "httpx"] = "auto"


class Turn(Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a templated dialogue."""

    role: str
    content: str


class RequestTemplate(Struct, frozen=True, forbid_unknown_fields=True):
    """How a data row becomes a request; `system`, `prompt`, `messages` are minijinja templates."""

    system: str = ""
    prompt: str = ""
    messages: list[Turn] = []
    params: dict[str, object] = {}


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """How fast at most. Absent: no limit."""

    concurrency: Count | Literal["auto"] = "auto"
    rpm: Positive | None = None
    tpm: Positive | None = None


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """When an attempt failed. `base` and `cap` in seconds; rate waits use no attempts."""

    attempts: Count = 5
    base: Positive = 0.5
    cap: Positive = 60.0
    max_outage: Positive = 600.0


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """All in seconds: connecting, silence between bytes, one attempt, one row with its retries."""

    connect: Positive = 10.0
    read: Positive = 120.0
    total: Positive = 300.0
    deadline: Positive = 3600.0


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    """When to stop spending (USD)."""

    max_cost: Positive | None = None


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """USD per million tokens. `cached`: price of cached input (None: as `input`)."""

    input: Annotated[float, Meta(ge=0)]
    output: Annotated[float, Meta(ge=0)] = 0.0
    cached: Annotated[float, Meta(ge=0)] | None = None


class Output(Struct, frozen=True, forbid_unknown_fields=True):
    """What is written, and where. `prefix`: default beside the input, named after it."""

    prefix: str | None = None
    include_response: bool = False


class Intake(Struct, frozen=True, forbid_unknown_fields=True):
    """Reading the input. Bytes."""

    max_line: Count = 16 * 1024 * 1024


class Simulate(Struct, frozen=True, forbid_unknown_fields=True):
    """The simulated provider (`provider = "simulated"`). Times in seconds, shares from 0 to 1."""

    api: Literal["openai-chat", "openai-completions", "openai-embeddings"] = "openai-chat"
    latency: Annotated[float, Meta(ge=0)] = 0.05
    jitter: Share = 0.2
    per_token: Annotated[float, Meta(ge=0)] = 0.0
    slots: Annotated[int, Meta(ge=0)] = 0
    rpm: Annotated[float, Meta(ge=0)] = 0
    tpm: Annotated[float, Meta(ge=0)] = 0
    error_rate: Share = 0.0
    rate_limit_rate: Share = 0.0
    hang_rate: Share = 0.0
    truncate_rate: Share = 0.0
    seed: int = 0


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole job's configuration."""

    endpoint: Endpoint | None = None
    request: RequestTemplate = RequestTemplate()
    limits: Limits = Limits()
    retry: Retry = Retry()
    timeouts: Timeouts = Timeouts()
    budget: Budget = Budget()
    prices: dict[str, Price] = {}
    output: Output = Output()
    intake: Intake = Intake()
    simulate: Simulate = Simulate()
