# SPDX-License-Identifier: Apache-2.0
"""Pydantic models that cover the field types of its documentation, each with instances, for check_schemas.py."""
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import re
import uuid
from typing import (Annotated, Any, Deque, Dict, FrozenSet, Generic, List, Literal, NamedTuple, Optional, Sequence, Set,
                    Tuple, TypeVar, Union)

import pydantic as p
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import NotRequired, TypedDict

UTC = dt.timezone.utc
NOON = dt.datetime(2024, 2, 29, 12, 30, 5, 250000, tzinfo=UTC)
LIST = []


def models():
    return LIST


def having(*values, **fields):
    """A model with these fields, and an instance of each dictionary of values."""
    name = f"Fields{len(LIST)}_" + "_".join(fields)
    model = p.create_model(name, **{key: kind if isinstance(kind, tuple) else (kind, ...)
                                    for key, kind in fields.items()})
    LIST.append((model, [model(**one) for one in values]))


def with_instances(*values):
    def add(model):
        LIST.append((model, [model.model_validate(one) for one in values]))
        return model
    return add


class Colour(str, enum.Enum):
    red = "red"
    green = "green"


class Level(enum.IntEnum):
    low = 1
    high = 2


class Address(BaseModel):
    street: str
    city: str = Field(description="the city")


# Standard types.
having({"a": True}, {"a": False}, a=bool)
having({"a": 76561198012345678}, {"a": -9223372036854775808}, {"a": 0}, a=int)
having({"a": 0.1}, {"a": 1e-7}, {"a": 12345678901.25}, {"a": 1.5e300}, {"a": -0.30000000000000004}, a=float)
having({"a": decimal.Decimal("12.50")}, {"a": decimal.Decimal("-3")}, a=decimal.Decimal)
having({"a": decimal.Decimal("1.25")}, a=(Annotated[decimal.Decimal, Field(max_digits=5, decimal_places=2)], ...))
having({"a": "x\n\"y\" é 😀"}, {"a": ""}, a=str)
having({"a": b"bytes"}, a=bytes)
having({"a": NOON}, {"a": NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5)), microsecond=0)}, a=dt.datetime)
having({"a": dt.date(2024, 2, 29)}, {"a": dt.date(1999, 12, 31)}, a=dt.date)
having({"a": dt.time(23, 59, 1, tzinfo=UTC)}, {"a": dt.time(0, 0, 0, 125, tzinfo=UTC)}, a=dt.time)
having({"a": dt.timedelta(days=1, seconds=5)}, a=dt.timedelta)
having({"a": NOON}, a=p.AwareDatetime)
having({"a": dt.date(1990, 1, 1)}, a=p.PastDate)
having({"a": Colour.red, "b": None}, {"a": Colour.green, "b": Colour.red}, a=Colour, b=(Optional[Colour], None))
having({"a": Level.high}, a=Level)
having({"a": "x"}, {"a": "y"}, a=Literal["x", "y"])
having({"a": 1}, {"a": "b"}, {"a": None}, {"a": True}, a=Literal[1, "b", None, True])
having({"a": None}, a=type(None))
having({"a": [1, {"b": None}]}, {"a": "x"}, a=Any)
having({"a": re.compile("^a+$")}, a=re.Pattern)
having({"a": pathlib.PurePosixPath("/tmp/x")}, a=pathlib.PurePath)
having({"a": uuid.UUID(int=7)}, a=uuid.UUID)
having({"a": uuid.uuid5(uuid.NAMESPACE_DNS, "x")}, a=p.UUID5)
having({"a": ipaddress.IPv4Address("192.168.0.1")}, {"a": ipaddress.IPv6Address("::1")}, a=p.IPvAnyAddress)
having({"a": "10.0.0.1", "b": "2001:db8::8a2e:370:7334"}, a=ipaddress.IPv4Address, b=ipaddress.IPv6Address)
having({"a": "10.0.0.0/8"}, a=ipaddress.IPv4Network)

# Containers.
having({"a": [1, 2, 3]}, {"a": []}, a=List[int])
having({"a": [[1.5], []]}, a=List[List[float]])
having({"a": {3, 4}}, {"a": set()}, a=Set[int])
having({"a": frozenset(["x"])}, a=FrozenSet[str])
having({"a": (1, "x")}, a=Tuple[int, str])
having({"a": (1, 2, 3)}, {"a": ()}, a=Tuple[int, ...])
having({"a": (1, "x", [True])}, a=Tuple[int, str, List[bool]])
having({"a": collections.deque([1])}, a=Deque[int])
having({"a": ["x"]}, a=Sequence[str])
having({"a": {"k": 1, "other": 2}}, {"a": {}}, a=Dict[str, int])
having({"a": {1: 0.5}}, a=Dict[int, float])
having({"a": {Colour.red: 1}}, a=Dict[Colour, int])
having({"a": {"home": {"street": "s", "city": "c"}}}, a=Dict[str, Address])
having({"a": {"n1": 1}}, a=Dict[Annotated[str, Field(pattern=r"^n\d$")], int])
having({"a": {"x": 1}}, a=(Annotated[Dict[str, int], Field(min_length=1, max_length=3)], ...))
having({"a": collections.Counter("abca")}, a=collections.Counter)
having({"a": [1, "x", None]}, a=List[Union[int, str, None]])

# Unions and optional fields.
having({"a": 1, "b": None}, {"a": "x", "b": 2.5}, a=Union[int, str], b=(Optional[float], None))
having({"a": {"street": "s", "city": "c"}}, {"a": ["x"]}, a=Union[Address, List[str]])


class Cat(BaseModel):
    type: Literal["cat"]
    lives: int


class Dog(BaseModel):
    type: Literal["dog"]
    name: str = "Rex"


having({"pet": {"type": "cat", "lives": 9}}, {"pet": {"type": "dog"}},
       pet=(Union[Cat, Dog], Field(discriminator="type")))
having({"pets": [{"type": "cat", "lives": 9}, {"type": "dog", "name": "Bo"}]},
       pets=List[Annotated[Union[Cat, Dog], Field(discriminator="type")]])

# Constraints.
having({"a": 1, "b": 99, "c": -5, "d": 15}, a=p.PositiveInt, b=p.conint(gt=0, lt=100), c=p.conint(le=0, ge=-9),
       d=p.conint(multiple_of=5))
having({"a": 0.5, "b": 1.0, "c": 0.25}, a=p.PositiveFloat, b=p.confloat(gt=0, le=1), c=p.confloat(multiple_of=0.25))
having({"a": "AB"}, {"a": "ABCDE"}, a=p.constr(min_length=2, max_length=5, pattern="^[A-Z]+$"))
having({"a": "x" * 300}, a=p.constr(max_length=10_000))
having({"a": "ab-12"}, a=p.constr(pattern=r"[a-z]+-\d+"))
having({"a": [1, 2]}, a=p.conlist(int, min_length=1, max_length=4))
having({"a": {1, 2}}, a=p.conset(int, min_length=1, max_length=4))
having({"a": dt.date(2024, 5, 5)}, a=p.condate(gt=dt.date(2020, 1, 1)))
having({"a": decimal.Decimal("2.5")}, a=p.condecimal(gt=0, lt=10))
having({"a": 5, "b": 2.5, "c": "s", "d": True}, a=p.StrictInt, b=p.StrictFloat, c=p.StrictStr, d=p.StrictBool)

# Pydantic's own types.
having({"a": "https://example.com/a?b=c#d", "b": "ftp://example.com/"}, a=p.HttpUrl, b=p.AnyUrl)
having({"a": "postgres://user:pass@localhost:5432/db"}, a=p.PostgresDsn)
having({"a": "ada@example.com"}, a=p.EmailStr)
having({"a": "Ada <ada@example.com>"}, a=p.NameEmail)
having({"a": "secret"}, a=p.SecretStr)
having({"a": "1GiB"}, a=p.ByteSize)
having({"a": "[1, 2]"}, a=p.Json[List[int]])
having({"a": b"aGVsbG8="}, a=p.Base64Bytes)


# Models.
@with_instances({"name": "n", "addresses": [{"street": "s", "city": "c"}]})
class Nested(BaseModel):
    name: str
    addresses: List[Address]


@with_instances({"value": 1, "children": [{"value": 2}, {"value": 3, "children": [{"value": 4}]}]})
class Node(BaseModel):
    value: int
    children: List["Node"] = []


@with_instances({"value": 1, "next": {"value": 2, "next": None}})
class Linked(BaseModel):
    value: int
    next: Optional["Linked"] = None


@with_instances([{"street": "s", "city": "c"}], [])
class Root(p.RootModel[List[Address]]):
    pass


@with_instances({"a": 1, "more": [1], "other": "x"})
class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


@with_instances({"a": 1})
class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", title="Closed", json_schema_extra={"examples": [{"a": 1}]})
    a: int


@with_instances({"firstName": "Ada", "age-in-years": 36})
class Aliased(BaseModel):
    name: str = Field(alias="firstName", title="Name", examples=["Ada"], deprecated=True)
    age: int = Field(alias="age-in-years", ge=0, json_schema_extra={"readOnly": True})


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: List[T]
    total: int


LIST.append((Page[Address], [Page[Address](items=[{"street": "s", "city": "c"}], total=1)]))


class Point(NamedTuple):
    x: int
    y: float


class Film(TypedDict):
    name: str
    year: NotRequired[int]


@dataclasses.dataclass
class Size:
    width: int
    height: Optional[int] = None


having({"a": Point(1, 2.5)}, a=Point)
having({"a": {"name": "n"}}, {"a": {"name": "n", "year": 1999}}, a=Film)
having({"a": Size(1)}, {"a": Size(1, 2)}, a=Size)


@with_instances({"width": 2, "height": 3})
class Area(BaseModel):
    width: int
    height: int

    @p.computed_field
    @property
    def area(self) -> int:
        return self.width * self.height


@with_instances({"status": "ok", "scores": {"a": 0.5}, "tags": ["x"], "when": NOON, "by": {"type": "dog"}})
class Report(BaseModel):
    """A report as tools return it."""
    status: Literal["ok", "failed"] = "ok"
    scores: Dict[str, Annotated[float, Field(ge=0, le=1)]]
    tags: Annotated[List[Annotated[str, Field(min_length=1, max_length=20)]], Field(max_length=8)]
    when: dt.datetime
    by: Annotated[Union[Cat, Dog], Field(discriminator="type")]
    note: Optional[Annotated[str, Field(max_length=500)]] = None
