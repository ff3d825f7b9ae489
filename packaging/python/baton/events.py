# SPDX-License-Identifier: Apache-2.0
"""What happens in a run, one class for each type of event of `baton run --events ndjson` (docs/cli.md)."""

import dataclasses
import json
import re


@dataclasses.dataclass(frozen=True)
class Event:
    """Base of all events; by itself, one of a later library, whose fields are in `fields` alone."""

    fields: dict = dataclasses.field(repr=False, compare=False, kw_only=True)  # all of it, as JSON has it


@dataclasses.dataclass(frozen=True)
class RunStarted(Event):
    workflow: str
    turns: int


@dataclasses.dataclass(frozen=True)
class AgentStarted(Event):
    agent: str
    role: str
    round: int
    prompt_tokens: int


@dataclasses.dataclass(frozen=True)
class PrefillProgress(Event):
    agent: str
    round: int
    tokens: int
    prompt_tokens: int


@dataclasses.dataclass(frozen=True)
class Prefill(Event):
    agent: str
    round: int
    kv: dict
    prefill_ms: float


@dataclasses.dataclass(frozen=True)
class Token(Event):
    agent: str
    round: int
    id: int
    text: str


@dataclasses.dataclass(frozen=True)
class TentativeToken(Event):
    agent: str
    round: int
    id: int
    text: str


@dataclasses.dataclass(frozen=True)
class Confirmed(Event):
    agent: str
    round: int
    tokens: int
    tentative: int


@dataclasses.dataclass(frozen=True)
class ToolCalled(Event):
    agent: str
    round: int
    tool: str
    arguments: str
    code: str
    ok: bool
    result: str
    wall_ms: float


@dataclasses.dataclass(frozen=True)
class AgentFinished(Event):
    record: dict


@dataclasses.dataclass(frozen=True)
class Relayed(Event):
    from_agent: str
    to: str
    round: int
    slot: dict


@dataclasses.dataclass(frozen=True)
class Asked(Event):
    agent: str
    round: int
    question: str
    choices: list


@dataclasses.dataclass(frozen=True)
class Warning(Event):
    message: str


@dataclasses.dataclass(frozen=True)
class RunFinished(Event):
    record: dict


TYPES = {re.sub(r"(?<!^)(?=[A-Z])", "_", type_.__name__).lower(): type_ for type_ in Event.__subclasses__()}
NAMES = {"from_agent": "from"}  # a word of Python


def event_of(text):
    """The event that a line of JSON describes. Fields that a later library adds are in `fields`."""
    fields = json.loads(text)
    type_ = TYPES.get(fields["type"], Event)
    own = {field.name: fields[NAMES.get(field.name, field.name)]
           for field in dataclasses.fields(type_) if field.name != "fields"}
    return type_(fields=fields, **own)
