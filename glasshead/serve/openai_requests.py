"""Requests of the OpenAI API.

A setting that is not supported is an error, not ignored, unless it cannot change an answer (`user`,
`metadata`, ...). `top_k`, `min_p` and `repetition_penalty` are additions.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from glasshead.generation.sampling import SamplingConfig

__all__ = ["ChatRequest", "CompletionRequest", "GenerationRequest", "Model", "Models"]

Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Id = Annotated[int, Field(ge=0, lt=2**31)]


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False
    include_obfuscation: bool = False


class GenerationRequest(BaseModel):
    """The fields of both kinds of requests."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1, max_length=1024)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=1, lt=2**31)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=0.1, le=10)
    n: int | None = Field(None, ge=1, le=128)
    max_tokens: int | None = Field(None, ge=1, lt=2**31)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @field_validator("frequency_penalty", "presence_penalty", "logit_bias")
    @classmethod
    def _refuse_penalty(cls, value: Any) -> Any:
        if value:
            raise ValueError("is not supported; use repetition_penalty")
        return value

    @property
    def sampling(self) -> SamplingConfig:
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        given = {name: getattr(self, name) for name in names}
        return SamplingConfig(**{name: x for name, x in given.items() if x is not None})

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class CompletionRequest(GenerationRequest):
    """Prompts: one or several, as text or as ids."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=128)]
        | Annotated[list[Id], Field(min_length=1)]
        | Annotated[
            list[Annotated[list[Id], Field(min_length=1)]], Field(min_length=1, max_length=128)
        ]
    ) = ""
    max_tokens: int | None = Field(None, ge=0, lt=2**31)
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = None
    best_of: int | None = Field(None, ge=1, le=128)
    suffix: str | None = None

    @field_validator("suffix")
    @classmethod
    def _refuse_suffix(cls, value: str | None) -> str | None:
        if value:
            raise ValueError("is not supported")
        return value

    @property
    def prompts(self) -> list[str | list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if all(isinstance(part, int) for part in self.prompt):
            return [self.prompt]  # type: ignore[list-item]
        return list(self.prompt)  # type: ignore[arg-type]


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(max_length=1000)]
    name: str | None = Field(None, max_length=200)

    @property
    def plain(self) -> dict[str, str]:
        """The message for chat templates, which call a developer the system."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ResponseFormat(BaseModel):
    type: Literal["text"]


class ChatRequest(GenerationRequest):
    """A conversation to answer."""

    messages: list[Message] = Field(min_length=1, max_length=1000)
    max_completion_tokens: int | None = Field(None, ge=1, lt=2**31)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    modalities: list[Literal["text"]] | None = None


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = 0  # not known
    owned_by: str = "glasshead"
    max_model_len: int | None = None


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]
