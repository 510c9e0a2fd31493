"""The shape of a job's configuration: frozen values with their defaults and units.

Owns: names, types, defaults, the meaning of each field (the `name: meaning` lines of a class's
docstring are its documentation in `batchinfer init` and in the JSON Schema). Refuses to know:
TOML, environment, flags, files. A secret never stands in these values: only the name of the
variable or file that holds it.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]

ProviderName = Literal["openai-chat", "openai-completions", "openai-embeddings", "simulated"]


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the requests go.

    provider: the wire API that the endpoint speaks.
    base_url: http(s) address before `/chat/completions`; may hold `${env:NAME}`.
    model: asked of every row that does not name its own.
    api_key_env: the environment variable that holds the API key.
    api_key_file: a file that holds the API key and nothing else; instead of api_key_env.
    headers: sent with every request; values may hold `${env:NAME}`.
    transport: the HTTP client; auto takes pyreqwest where it is installed.
    allow_insecure_http: send the key even over plain http to another machine.
    """

    provider: ProviderName = "openai-chat"
    base_url: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    headers: dict[str, str] = {}
    transport: Literal["auto", "pyreqwest", "httpx"] = "auto"
    allow_insecure_http: bool = False

    def __repr__(self) -> str:
        """Show where the requests go, without what a URL's query or a header may carry."""
        url = self.base_url and self.base_url.partition("?")[0].rpartition("@")[2]
        return f"Endpoint(provider={self.provider!r}, base_url={url!r}, model={self.model!r})"


class Turn(Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a templated dialogue.

    role: system, user or assistant.
    content: a template over the row.
    """

    role: str
    content: str


class RequestTemplate(Struct, frozen=True, forbid_unknown_fields=True):
    """How a data row becomes a request. Templates are minijinja: `{{ text }}` is the row's field.

    system: template of the system message.
    prompt: template of the user message.
    messages: templates of a whole dialogue; instead of prompt.
    params: sent with every request as they are, such as temperature and max_tokens.
    """

    system: str = ""
    prompt: str = ""
    messages: list[Turn] = []
    params: dict[str, object] = {}


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """How fast at most.

    concurrency: requests in flight; auto finds the number that keeps the server full.
    rpm: requests a minute.
    tpm: tokens a minute, input and output together.
    input_tpm: tokens a minute of the requests alone.
    output_tpm: tokens a minute of the answers alone.
    rpd: requests in any 24 hours; when they are used up the run stops (exit 75).
    tpd: tokens in any 24 hours, input and output together; likewise.
    tpm_accounting: reserve where the server sets max_tokens aside while a request runs.
    """

    concurrency: Count | Literal["auto"] = "auto"
    rpm: Positive | None = None
    tpm: Positive | None = None
    input_tpm: Positive | None = None
    output_tpm: Positive | None = None
    rpd: Positive | None = None
    tpd: Positive | None = None
    tpm_accounting: Literal["actual", "reserve"] = "actual"


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do when an attempt failed. Waiting for a rate limit uses no attempts.

    attempts: tries of one row in all, the first one included.
    base: seconds of the first wait; it doubles from there, with jitter.
    cap: seconds of the longest wait.
    max_outage: seconds an endpoint may stay away before the run stops (exit 75).
    """

    attempts: Count = 5
    base: Positive = 0.5
    cap: Positive = 60.0
    max_outage: Positive = 600.0


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait, in seconds.

    connect: for a connection.
    read: for the next byte.
    total: for one attempt.
    deadline: for one row, with all its attempts.
    """

    connect: Positive = 10.0
    read: Positive = 120.0
    total: Positive = 300.0
    deadline: Positive = 3600.0


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    """When to stop spending.

    max_cost: USD for the whole job; once they are spent the run stops (exit 75).
    """

    max_cost: Positive | None = None


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model costs, in USD per million tokens.

    input: of the request.
    output: of the answer.
    cached: of the request's part that the server had cached; absent: as input.
    """

    input: Annotated[float, Meta(ge=0)]
    output: Annotated[float, Meta(ge=0)] = 0.0
    cached: Annotated[float, Meta(ge=0)] | None = None


class Output(Struct, frozen=True, forbid_unknown_fields=True):
    """What is written, and where.

    prefix: path before `.success.jsonl` and the others; absent: beside the input, named after it.
    include_response: keep the server's whole reply in each record.
    """

    prefix: str | None = None
    include_response: bool = False


class Intake(Struct, frozen=True, forbid_unknown_fields=True):
    """Reading the input.

    max_line: bytes of the longest line that is read; a longer one is a failed row.
    """

    max_line: Count = 16 * 1024 * 1024


class Simulate(Struct, frozen=True, forbid_unknown_fields=True):
    """The simulated provider (`provider = "simulated"`). Shares from 0 to 1; 0 is no limit.

    api: the wire API that it speaks.
    latency: seconds that a request takes.
    jitter: share of the latency by which it varies.
    per_token: seconds more for each output token.
    slots: requests worked on at once; others queue.
    rpm: requests a minute before it answers 429.
    tpm: tokens a minute before it answers 429.
    error_rate: share of requests answered with 500.
    rate_limit_rate: share of requests answered with 429 without a cause.
    hang_rate: share of requests never answered.
    truncate_rate: share of prompts whose answer is always cut short.
    seed: of the chance in all this; the same job meets the same provider.
    """

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
    """The configuration of a batchinfer job.

    prices: what models cost, by model name.
    """

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
