# SPDX-License-Identifier: Apache-2.0
"""Pydantic models that cover the field types of its documentation, each with instances, for check_schemas.py."""
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import uuid
from typing import (Annotated, Any, Deque, Dict, FrozenSet, Generic, List, Literal, Mapping, NamedTuple, NewType,
                    Optional, Sequence, Set, Tuple, TypeVar, Union)

import pydantic
import pydantic as p
import pydantic.alias_generators
import pydantic.dataclasses
import pydantic.json_schema
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import NotRequired, Required, TypeAliasType, TypedDict

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


# More of the standard types.
class Shape(enum.Enum):
    circle = "circle"
    square = 4
    none = None


class Weekday(enum.StrEnum):
    monday = enum.auto()
    sunday = enum.auto()


class Access(enum.IntFlag):
    read = 1
    write = 2


class Single(enum.Enum):
    only = "only"


class Ratio(float, enum.Enum):
    half = 0.5
    whole = 1.0


having({"a": Shape.circle}, {"a": Shape.square}, {"a": Shape.none}, a=Shape)
having({"a": Weekday.sunday}, a=Weekday)
having({"a": Access.read}, {"a": Access.write}, a=Access)
having({"a": Single.only}, a=Single)
having({"a": Ratio.half}, a=Ratio)
having({"a": "on"}, a=Literal["on"])
having({"a": Colour.red}, {"a": Colour.green}, a=Literal[Colour.red, Colour.green])
having({"a": [Colour.red]}, a=List[Colour])
having({"a": {Level.low: [Weekday.monday]}}, a=Dict[Level, List[Weekday]])
having({"a": {"x": 1}}, {"a": {}}, a=Dict[Literal["x", "y"], int])
having({"a": 2 + 1j}, a=complex)
having({"a": fractions.Fraction(1, 3)}, a=fractions.Fraction)
having({"a": None}, {"a": 3}, a=Optional[int])
having({"a": 3}, {}, a=(Optional[int], None))
having({"a": "x"}, {}, a=(str, "x"))
having({}, {"a": ["y"]}, a=(List[str], Field(default_factory=lambda: ["x"])))
having({"a": b"abc"}, a=Annotated[bytes, Field(min_length=2, max_length=5)])
having({"a": [1, "x", None, {"k": [True]}]}, {"a": {}}, {"a": 1.5}, a=p.JsonValue)
having({"a": {"k": [1, None]}}, a=Dict[str, p.JsonValue])
having({"a": dt.timedelta(0)}, {"a": dt.timedelta(days=400, hours=3, minutes=2, seconds=1)},
       {"a": dt.timedelta(seconds=90)}, a=dt.timedelta)
having({"a": dt.timedelta(hours=2)}, a=Annotated[dt.timedelta, Field(gt=dt.timedelta(0), le=dt.timedelta(days=1))])
having({"a": dt.timedelta(seconds=1), "b": [dt.timedelta(days=3)]}, a=Optional[dt.timedelta], b=List[dt.timedelta])
having({"a": NOON}, a=p.PastDatetime)
having({"a": dt.datetime(2999, 1, 1, tzinfo=UTC)}, a=p.FutureDatetime)
having({"a": dt.date(2999, 1, 1)}, a=p.FutureDate)
having({"a": NOON}, a=Annotated[dt.datetime, Field(ge=dt.datetime(2000, 1, 1, tzinfo=UTC))])
having({"a": {dt.date(2024, 1, 2): 1}}, a=Dict[dt.date, int])
having({"a": {uuid.UUID(int=9): "x"}}, a=Dict[uuid.UUID, str])
having({"a": uuid.UUID("f81d4fae-7dec-4d1d-a765-00a0c91e6bf6")}, a=p.UUID4)
having({"a": uuid.uuid3(uuid.NAMESPACE_DNS, "x"), "b": uuid.uuid1(1, 2)}, a=p.UUID3, b=p.UUID1)
having({"a": "fe80::1", "b": "10.1.2.3"}, a=p.IPvAnyAddress, b=p.IPvAnyAddress)
having({"a": "10.1.2.3/8"}, a=p.IPvAnyInterface)
having({"a": "10.0.0.0/8"}, a=p.IPvAnyNetwork)
having({"a": "10.1.2.3/8", "b": "fe80::1/64", "c": "2001:db8::/32"}, a=ipaddress.IPv4Interface,
       b=ipaddress.IPv6Interface, c=ipaddress.IPv6Network)
having({"a": pathlib.Path("a/b")}, a=pathlib.Path)
having({"a": pathlib.Path("/")}, a=p.DirectoryPath)
having({"a": decimal.Decimal("0.001")}, {"a": decimal.Decimal("1000000")}, a=Annotated[decimal.Decimal, Field(ge=0)])
having({"a": decimal.Decimal("99.9")}, a=p.condecimal(max_digits=3, decimal_places=1))
having({"a": decimal.Decimal("7.5")}, a=p.condecimal(multiple_of=decimal.Decimal("0.5")))
having({"a": [decimal.Decimal("1.1"), decimal.Decimal("-2")]}, a=List[decimal.Decimal])
having({"a": 0.0}, {"a": 1e22}, {"a": -1e-320}, a=p.FiniteFloat)
having({"a": -1.5, "b": 0.0, "c": 0.0}, a=p.NegativeFloat, b=p.NonNegativeFloat, c=p.NonPositiveFloat)
having({"a": -1, "b": 0, "c": 0}, a=p.NegativeInt, b=p.NonNegativeInt, c=p.NonPositiveInt)
having({"a": 255}, {"a": 0}, a=Annotated[int, Field(ge=0, le=255)])
having({"a": 2 ** 53 + 1}, a=Annotated[int, Field(gt=2 ** 53)])
having({"a": 1.25}, a=Annotated[float, Field(gt=1.2, lt=1.3)])
having({"a": 6}, {"a": -12}, a=Annotated[int, Field(multiple_of=6)])
having({"a": 42}, a=Annotated[int, Field(strict=True, ge=40, lt=43)])

# More containers.
having({"a": [1, 2]}, a=list)
having({"a": (1, "x")}, a=tuple)
having({"a": {1}}, a=set)
having({"a": {"k": 1}}, a=dict)
having({"a": frozenset([1, 2])}, a=FrozenSet[int])
having({"a": ()}, a=Tuple[()])
having({"a": ((1, 2), (3, 4))}, a=Tuple[Tuple[int, int], Tuple[int, int]])
having({"a": [(1, "x"), (2, "y")]}, a=List[Tuple[int, str]])
having({"a": {"k": (1, 2.5)}}, a=Dict[str, Tuple[int, float]])
having({"a": {"x": {"y": {"z": 1}}}}, a=Dict[str, Dict[str, Dict[str, int]]])
having({"a": collections.OrderedDict(k=1)}, a=collections.OrderedDict[str, int])
having({"a": collections.defaultdict(list, k=[1])}, a=collections.defaultdict[str, List[int]])
having({"a": {"k": 1}}, a=Mapping[str, int])
having({"a": collections.deque([1, 2], maxlen=3)}, a=Annotated[Deque[int], Field(max_length=3)])
having({"a": {"ab": 1}}, a=Dict[Annotated[str, Field(min_length=2, max_length=4)], int])
having({"a": {"AB": 1}}, a=Dict[Annotated[str, p.StringConstraints(pattern="^[A-Z]+$", max_length=3)], int])
having({"a": {"1": 1}}, a=Annotated[Dict[str, int], Field(min_length=1)])
having({"a": [["x"]]}, a=Annotated[List[Annotated[List[str], Field(min_length=1)]], Field(max_length=2)])
having({"a": [1, 2, 3]}, a=Annotated[Tuple[int, ...], Field(min_length=3)])
having({"a": [{"street": "s", "city": "c"}] * 2}, a=Annotated[List[Address], Field(min_length=2, max_length=2)])
having({"a": frozenset(["x"])}, a=Annotated[FrozenSet[str], Field(min_length=1)])

# More strings.
having({"a": "abc"}, a=Annotated[str, p.StringConstraints(strip_whitespace=True, to_lower=True, min_length=1)])
having({"a": "GB29NWBK60161331926819"}, a=Annotated[str, Field(pattern=r"^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$")])
having({"a": "2024-W09"}, a=Annotated[str, Field(pattern=r"^\d{4}-W(0[1-9]|[1-4]\d|5[0-3])$")])
having({"a": "#ff00aa"}, a=Annotated[str, Field(pattern=r"^#(?:[0-9a-fA-F]{3}){1,2}$")])
having({"a": "v1.2.3-rc.1"}, a=Annotated[str, Field(pattern=r"^v?(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?$")])
having({"a": "straße"}, a=Annotated[str, Field(min_length=6, max_length=6)])
having({"a": "x_1"}, a=Annotated[str, Field(pattern=r"^[\w-]+$", max_length=8)])
having({"a": "a/b"}, a=Annotated[str, Field(pattern=r"\/")])
having({"a": "say foo now"}, a=Annotated[str, Field(pattern=r"\bfoo\b")])
having({"a": b"aGVsbG8="}, a=p.Base64UrlBytes)
having({"a": "aGVsbG8="}, {"a": "aGVsbG8="}, a=p.Base64Str)
having({"a": "secret"}, a=p.SecretBytes)
having({"a": p.Secret[int](5)}, a=p.Secret[int])
having({"a": "ada@example.com", "b": [("x@example.org")]}, a=Optional[p.EmailStr], b=List[p.EmailStr])
having({"a": "https://example.com/x y"}, a=p.AnyHttpUrl)
having({"a": "wss://example.com/chat"}, a=p.AnyWebsocketUrl)
having({"a": "file:///etc/hosts"}, a=p.FileUrl)
having({"a": "redis://localhost:6379/0", "b": "mongodb://localhost:27017/db"}, a=p.RedisDsn, b=p.MongoDsn)
having({"a": "amqp://guest@localhost:5672/"}, a=p.AmqpDsn)
having({"a": "kafka://localhost:9092"}, a=p.KafkaDsn)
having({"a": "https://example.com/"}, a=Annotated[p.AnyUrl, p.UrlConstraints(max_length=100,
                                                                                   allowed_schemes=["https"])])
having({"a": "{\"b\": 1}"}, a=p.Json)
having({"a": "[[1]]"}, a=p.Json[List[List[int]]])

# More unions.
having({"a": [1]}, {"a": {"k": 1}}, a=Union[List[int], Dict[str, int]])
having({"a": 1}, {"a": 1.5}, {"a": True}, {"a": "x"}, {"a": None}, a=Union[int, float, bool, str, None])
having({"a": "x" * 3}, {"a": 7}, a=Union[Annotated[str, Field(max_length=3)], Annotated[int, Field(ge=5)]])
having({"a": 1}, {"a": "auto"}, a=Union[Literal["auto"], p.PositiveInt])
having({"a": dt.date(2024, 1, 1)}, {"a": 3}, a=Union[dt.date, int])
having({"a": {"type": "cat", "lives": 3}}, {"a": None}, a=Optional[Union[Cat, Dog]])
having({"a": [{"type": "cat", "lives": 3}, 4, "x"]}, a=List[Union[Cat, int, str]])
having({"a": {"k": {"type": "dog"}}}, a=Dict[str, Annotated[Union[Cat, Dog], Field(discriminator="type")]])


class Lizard(BaseModel):
    type: Literal["lizard", "reptile"]
    scales: bool


class Fish(BaseModel):
    kind: Literal["fish"]


def kind_of(value):
    return value.get("kind", value.get("type")) if isinstance(value, dict) else getattr(value, "kind", "cat")


having({"a": {"type": "reptile", "scales": True}}, {"a": {"type": "dog", "name": "B"}},
       a=(Union[Annotated[Union[Cat, Dog], Field(discriminator="type")], Lizard], Field(discriminator="type")))
having({"a": {"kind": "fish"}}, {"a": {"type": "cat", "lives": 1}},
       a=Annotated[Union[Annotated[Cat, p.Tag("cat")], Annotated[Fish, p.Tag("fish")]], p.Discriminator(kind_of)])
having({"a": 5}, {"a": "x"}, a=Annotated[Union[str, int], Field(union_mode="left_to_right")])


# More models.
@with_instances({"a": 1, "x": 2, "y": 3})
class TypedExtra(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: Dict[str, int]
    a: int


@with_instances({"a": 1, "b": {"a": 2}})
class ClosedOuter(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int
    b: Closed


@with_instances({}, {"a": 1})
class AllOptional(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int = 1
    b: str = "x"
    c: Optional[float] = None
    d: List[int] = []
    e: Dict[str, int] = {}


@with_instances({})
class Empty(BaseModel):
    pass


@with_instances({})
class EmptyClosed(BaseModel):
    model_config = ConfigDict(extra="forbid")


@with_instances({"firstName": "A", "lastName": "B"})
class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=pydantic.alias_generators.to_camel)
    first_name: str
    last_name: str = "x"


@with_instances({"in": "a", "x y": 1, "ключ": 2, "$ref": 3, "quo\"te": 4})
class OddNames(BaseModel):
    a: str = Field(alias="in")
    b: int = Field(alias="x y")
    c: int = Field(alias="ключ")
    d: int = Field(alias="$ref")
    e: int = Field(alias="quo\"te")


@with_instances({"a": 3})
class Titled(BaseModel):
    """A text
    of several lines, with "quotes"."""
    model_config = ConfigDict(title="T", json_schema_extra={"x-note": 1, "$comment": "c"}, frozen=True)
    a: int = Field(title="A", description="d", examples=[3, 4], json_schema_extra={"x-unit": "m"})


@with_instances({"a": "5", "b": 6})
class Validated(BaseModel):
    a: Annotated[int, p.AfterValidator(lambda v: v)]
    b: Annotated[str, p.BeforeValidator(str)]
    c: Annotated[str, p.PlainSerializer(lambda v: len(v), return_type=int, when_used="json")] = "abc"


@with_instances({"a": 5})
class Overridden(BaseModel):
    a: Annotated[int, p.WithJsonSchema({"type": "integer", "minimum": 5, "examples": [5]})]


@with_instances({"a": [1]})
class Skipped(BaseModel):
    a: p.SkipValidation[List[int]]
    b: p.json_schema.SkipJsonSchema[int] = Field(5, exclude=True)


@with_instances({"left": {"left": None, "right": None}, "right": None})
class Tree(BaseModel):
    left: Optional["Tree"]
    right: Optional["Tree"]


class Employee(BaseModel):
    name: str
    team: Optional["Team"] = None


@with_instances({"name": "t", "members": [{"name": "a", "team": {"name": "u", "members": []}}]})
class Team(BaseModel):
    name: str
    members: List[Employee]


LIST.append((Employee, [Employee.model_validate({"name": "e"})]))


@with_instances({"op": "+", "args": [1, {"op": "-", "args": [2.5]}]})
class Expression(BaseModel):
    op: Literal["+", "-", "*", "/"]
    args: Annotated[List[Union[float, "Expression"]], Field(min_length=1, max_length=4)]


@with_instances(5)
class RootInt(p.RootModel[Annotated[int, Field(ge=5)]]):
    pass


@with_instances("a", "b")
class RootLiteral(p.RootModel[Literal["a", "b"]]):
    pass


@with_instances({"k": {"street": "s", "city": "c"}})
class RootDict(p.RootModel[Dict[str, Address]]):
    pass


@with_instances({"type": "dog"}, {"type": "cat", "lives": 1})
class RootUnion(p.RootModel[Annotated[Union[Cat, Dog], Field(discriminator="type")]]):
    pass


@with_instances([1, ["x", [2]]])
class RootNested(p.RootModel[List[Union[int, str, "RootNested"]]]):
    pass


class Inherited(Address):
    zip: Annotated[str, Field(pattern=r"^\d{5}$")]


LIST.append((Inherited, [Inherited(street="s", city="c", zip="12345")]))
K = TypeVar("K", bound=str)


class Pair(BaseModel, Generic[K, T]):
    key: K
    value: T


class Result(BaseModel, Generic[T]):
    ok: bool
    value: Optional[T] = None
    errors: List[str] = []


LIST.append((Pair[str, int], [Pair[str, int](key="k", value=1)]))
LIST.append((Result[Page[Address]], [Result[Page[Address]](ok=True, value={"items": [], "total": 0})]))
LIST.append((Result[Union[int, List[str]]], [Result[Union[int, List[str]]](ok=False, errors=["e"])]))


@pydantic.dataclasses.dataclass
class Box:
    width: Annotated[int, Field(gt=0)]
    tags: List[str] = dataclasses.field(default_factory=list)
    inner: Optional["Box"] = None


class Base(TypedDict):
    id: Required[int]


class Movie(Base, total=False):
    title: str
    rating: Annotated[float, Field(ge=0, le=10)]


class StrictFilm(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str


class Coordinates(NamedTuple):
    x: float
    y: float
    label: str = "origin"


having({"a": Box(3, ["t"], Box(4))}, a=Box)
having({"a": {"id": 1}}, {"a": {"id": 1, "title": "t", "rating": 9.5}}, a=Movie)
having({"a": {"name": "n"}}, a=StrictFilm)
having({"a": Coordinates(1, 2)}, {"a": Coordinates(0, 0, "z")}, a=Coordinates)
having({"a": [Size(1), Size(2, 3)]}, a=List[Size])
having({"a": Size(1)}, {"a": {"name": "n"}}, a=Union[Size, Film])
having({"a": 5}, a=NewType("UserId", int))
Positive = TypeAliasType("Positive", Annotated[int, Field(gt=0)])
JsonTree = TypeAliasType("JsonTree", "Union[Dict[str, JsonTree], List[JsonTree], str, int, None]")
having({"a": 1, "b": [1, 2]}, a=Positive, b=List[Positive])
having({"a": {"k": [1, {"x": None}]}}, a=JsonTree)


@with_instances({"radius": 2.0})
class Circle(BaseModel):
    radius: p.PositiveFloat

    @p.computed_field(description="of the surface")
    @property
    def area(self) -> float:
        return 3.0 * self.radius ** 2

    @p.computed_field(alias="isLarge")
    @property
    def is_large(self) -> bool:
        return self.radius > 10

    @p.computed_field
    @property
    def corners(self) -> List[Tuple[float, float]]:
        return [(0.0, 1.0)]


@with_instances({"a": NOON, "b": dt.timedelta(seconds=1.5), "c": b"\xff"})
class Encoded(BaseModel):
    model_config = ConfigDict(ser_json_timedelta="float", ser_json_bytes="base64", val_json_bytes="base64")
    a: dt.datetime
    b: dt.timedelta
    c: bytes


@with_instances({"a": 1, "b": "x"})
class WrittenOtherwise(BaseModel):
    a: int
    b: str

    @p.field_serializer("a")
    def text_of(self, value: int) -> str:
        return str(value)


@with_instances({"name": "x", "steps": [{"tool": "search", "args": {"q": "a", "limit": 3}}, {"tool": "stop"}]})
class Plan(BaseModel):
    class Search(BaseModel):
        class Args(BaseModel):
            q: Annotated[str, Field(min_length=1)]
            limit: Annotated[int, Field(ge=1, le=50)] = 10
        tool: Literal["search"]
        args: Args

    class Stop(BaseModel):
        tool: Literal["stop"] = "stop"
    name: str
    steps: Annotated[List[Annotated[Union[Search, Stop], Field(discriminator="tool")]], Field(min_length=1)]


@with_instances({"invoice": "INV-0001", "issued": "2024-05-05", "due": None, "currency": "EUR",
                 "lines": [{"text": "t", "count": 2, "price": "9.90"}], "total": 19.8,
                 "customer": {"name": "n", "address": {"street": "s", "city": "c"}, "email": "a@example.com"}})
class Invoice(BaseModel):
    class Line(BaseModel):
        text: Annotated[str, Field(max_length=80)]
        count: p.PositiveInt
        price: Annotated[decimal.Decimal, Field(ge=0, decimal_places=2)]

    class Customer(BaseModel):
        name: str
        address: Address
        email: Optional[p.EmailStr] = None
    invoice: Annotated[str, Field(pattern=r"^INV-\d{4}$")]
    issued: dt.date
    due: Optional[dt.date]
    currency: Literal["EUR", "USD"]
    lines: Annotated[List[Line], Field(min_length=1)]
    total: Annotated[float, Field(ge=0)]
    customer: Customer


@with_instances({"rows": [[1, None, "x"]], "header": ["a"], "meta": {"source": "s"}})
class Table(BaseModel):
    header: Annotated[List[str], Field(min_length=1, max_length=12)]
    rows: List[List[Union[int, float, str, bool, None]]]
    meta: Dict[str, Union[str, int]] = {}


@with_instances({"start": "2024-02-29T12:30:05Z", "end": None, "every": "P1DT2H", "days": ["monday"],
                 "at": "10:00:00Z"})
class Schedule(BaseModel):
    start: dt.datetime
    end: Optional[dt.datetime]
    every: dt.timedelta
    days: Set[Weekday]
    at: dt.time
