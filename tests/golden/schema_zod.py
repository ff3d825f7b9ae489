# SPDX-License-Identifier: Apache-2.0
"""120 schemas in the form in which Zod 4's `z.toJSONSchema()` writes them, with instances, for check_schemas.py.

They are written from what Zod documents of that function and from its regular expressions, not by running Zod: draft
2020-12, objects that are closed unless `io: "input"` asks for what is read, `format` next to `pattern`, `anyOf` for
unions and `.nullable()`, `oneOf` for discriminated unions, and `$defs` for what has an id, recurs or is shared.
"""
DRAFT = "https://json-schema.org/draft/2020-12/schema"
SAFE = 9007199254740991
INT = {"type": "integer", "minimum": -SAFE, "maximum": SAFE}
STRING = {"type": "string"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
NULL = {"type": "null"}
DATE = (r"(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|"
        r"1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))")
CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
TIME = CLOCK + r"(?::[0-5]\d(?:\.\d+)?)?"
BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])"
IPV6 = (r"(([0-9a-fA-F]{1,4}:){7}([0-9a-fA-F]{1,4}|:)|([0-9a-fA-F]{1,4}:){1,6}(:[0-9a-fA-F]{1,4}){1,1}|"
        r"([0-9a-fA-F]{1,4}:){1,7}:|:((:[0-9a-fA-F]{1,4}){1,7}|:))")
UUID = (r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|"
        r"00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$")
EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
HTML5_EMAIL = (r"^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:"
               r"[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$")
RFC5322_EMAIL = (r"""^(([^<>()\[\]\\.,;:\s@"]+(\.[^<>()\[\]\\.,;:\s@"]+)*)|(".+"))@((\[[0-9]{1,3}\.[0-9]{1,3}\.[0-9]"""
                 r"""{1,3}\.[0-9]{1,3}])|(([a-zA-Z\-0-9]+\.)+[a-zA-Z]{2,}))$""")
DURATION = (r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$")
HOSTNAME = (r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}"
            r"[0-9a-zA-Z])?)*\.?$")
BASE64 = r"^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$"
EMOJI = r"^(\p{Extended_Pictographic}|\p{Emoji_Component})+$"

LIST = []


def schemas():
    return LIST


def add(name, schema, valid, invalid, **root):
    LIST.append((name, {"$schema": DRAFT, **root, **schema}, valid, invalid))


def obj(optional=(), closed=True, **properties):
    """z.object(): what is not optional is required."""
    out = {"type": "object", "properties": properties}
    required = [name for name in properties if name not in optional]
    if required:
        out["required"] = required
    return out | ({"additionalProperties": False} if closed else {})


def arr(items, **more):
    return {"type": "array", "items": items, **more}


def tup(*items, rest=None):
    return {"type": "array", "prefixItems": list(items)} | ({"items": rest} if rest else {})


def record(keys, values, **more):
    return {"type": "object", "propertyNames": keys, "additionalProperties": values, **more}


def nullable(schema):
    return {"anyOf": [schema, NULL]}


def union(*schemas):
    return {"anyOf": list(schemas)}


def one_of(*schemas):
    return {"oneOf": list(schemas)}


def text(pattern=None, format=None, **more):
    out = {"type": "string"} | ({"format": format} if format else {}) | more
    return out | ({"pattern": pattern} if pattern else {})


def const(value):
    kind = "string" if isinstance(value, str) else "boolean" if isinstance(value, bool) else "number"
    return {"type": kind, "const": value}


def enum(*values):
    return {"type": "string", "enum": list(values)}


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


# Plain types.
add("string", STRING, ["", "é😀\n"], [1, None])
add("number", NUMBER, [0, -1.5, 1e10], ["1", None])
add("boolean", BOOLEAN, [True, False], [0, "true"])
add("null", NULL, [None], [0, ""])
add("int", INT, [0, -SAFE, SAFE], [SAFE + 1, 1.5, "1"])
add("int32", {"type": "integer", "minimum": -2147483648, "maximum": 2147483647}, [0, -2147483648], [2147483648, 0.5])
add("uint32", {"type": "integer", "minimum": 0, "maximum": 4294967295}, [4294967295], [-1, 4294967296])
add("float32", {"type": "number", "minimum": -3.4028234663852886e38, "maximum": 3.4028234663852886e38}, [1.5, -2],
    [1e39, "x"])
add("float64", {"type": "number", "minimum": -1.7976931348623157e308, "maximum": 1.7976931348623157e308}, [1.5], ["x"])
add("any", {}, [1, "x", None, {"a": []}], [])
add("unknown property", obj(a={}), [{"a": 1}, {"a": {"b": [None]}}], [{}, 1])
add("never", obj(("b",), a=STRING, b={"not": {}}), [{"a": "x"}], [{"a": "x", "b": 1}, {"a": "x", "b": None}])
add("literal string", const("tuna"), ["tuna"], ["tun", 1])
add("literal number", const(42), [42], [41, "42"])
add("literals", enum("red", "green", "blue"), ["red", "blue"], ["pink", None])
add("mixed literals", {"enum": ["a", 1, True]}, ["a", 1, True], ["b", 2, False])
add("literal null", {"type": "null", "const": None}, [None], [0])
add("enum", enum("Salmon", "Tuna", "Trout"), ["Tuna"], ["tuna"])
add("number enum", {"type": "number", "enum": [0, 1, 2]}, [0, 2], [3, "0"])
add("bigint as a number", {"type": "number", "multipleOf": 2, "exclusiveMinimum": 4}, [6, 8], [4, 7])
add("file", text(format="binary", contentEncoding="binary", minLength=1, maxLength=100, contentMediaType="image/png"),
    ["x"], ["", 1])

# Checks of numbers.
add("positive", {"type": "number", "exclusiveMinimum": 0}, [0.1, 5], [0, -1])
add("nonnegative int", {"type": "integer", "minimum": 0, "maximum": SAFE}, [0, 7], [-1])
add("positive int", {"type": "integer", "exclusiveMinimum": 0, "maximum": SAFE}, [1], [0])
add("between", {"type": "number", "minimum": 5, "exclusiveMaximum": 10.5}, [5, 10.25], [4.9, 10.5])
add("multiple of", {"type": "integer", "minimum": -SAFE, "maximum": SAFE, "multipleOf": 5}, [0, 15, -10], [7])
add("step", {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25}, [0.25, 1], [0.3, 2])

# Checks and formats of strings.
add("length", text(minLength=2, maxLength=5), ["ab", "abcde"], ["a", "abcdef"])
add("exact length", text(minLength=3, maxLength=3), ["abc"], ["ab", "abcd"])
add("regex", text(r"^[a-z]{2}-\d+$"), ["ab-1"], ["a-1", "ab-"])
add("starts with", text("^https.*"), ["https://x"], ["http://x"])
add("ends with", text(r".*\.com$"), ["a.com"], ["a.org"])
add("includes", text("-mid-"), ["a-mid-b"], ["amidb"])
add("two patterns", {"type": "string", "allOf": [{"pattern": "^a.*"}, {"pattern": ".*z$"}]}, ["az", "abz"], ["ab", "z"])
add("three checks", {"type": "string", "minLength": 4, "maxLength": 8,
                     "allOf": [{"pattern": "^[^a-z]*$"}, {"pattern": "^AB.*"}, {"pattern": "9"}]},
    ["ABC9"], ["AB9", "ABCD", "abc9"])
add("lowercase", text("^[^A-Z]*$"), ["abc 1"], ["aBc"])
add("uppercase", text("^[^a-z]*$"), ["ABC 1"], ["ABc"])
add("email", text(EMAIL, "email"), ["ada@example.com", "a.b+c@mail.example.org"],
    ["a..b@example.com", ".a@example.com", "a@b", "a@example.c"])
add("html5 email", text(HTML5_EMAIL, "email"), ["ada@example.com"], ["@example.com", "a b@c"])
add("rfc5322 email", text(RFC5322_EMAIL, "email"), ["ada@example.com"], ["a@b", "a,b@example.com"])
add("unicode email", text(r'^[^\s@"]{1,64}@[^\s@]{1,255}$', "email"), ["ada@example.com"], ["a", "a b@c"])
add("uuid", text(UUID, "uuid"), ["123e4567-e89b-42d3-a456-426614174000", "00000000-0000-0000-0000-000000000000"],
    ["123e4567-e89b-92d3-a456-426614174000", "123e4567", ""])
add("uuid v4", text(r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12})$",
                    "uuid"),
    ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-72d3-a456-426614174000"])
add("guid", text(r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})$", "uuid"),
    ["123e4567-e89b-f2d3-0456-426614174000"], ["123e4567-e89b-f2d3-0456-42661417400"])
add("url", text(format="uri"), ["https://example.com/a?b=c", "mailto:a@example.com"], ["no url", ""])
add("http url", text(r"^https?:\/\/", "uri"),
    ["http://example.com", "https://example.com/x"], ["ftp://example.com"])
add("emoji", text(EMOJI, "emoji"), ["😀", "👍🏽"], ["a", "", "😀a"])
add("nanoid", text("^[a-zA-Z0-9_-]{21}$", "nanoid"), ["V1StGXR8_Z5jdHi6B-myT"], ["short"])
add("cuid", text(r"^[cC][^\s-]{8,}$", "cuid"), ["cjld2cjxh0000qzrmn831i7rn"], ["xjld2cjxh", "c12 345678"])
add("cuid2", text("^[0-9a-z]+$", "cuid2"), ["tz4a98xxat96iws9zmbrgj3a"], ["A", ""])
add("ulid", text("^[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}$", "ulid"), ["01ARZ3NDEKTSV4RRFFQ69G5FAV"],
    ["01ARZ3NDEKTSV4RRFFQ69G5FAI"])
add("xid", text("^[0-9a-vA-V]{20}$", "xid"), ["9m4e2mr0ui3e8a215n4g"], ["9m4e2mr0ui3e8a215n4z"])
add("ksuid", text("^[A-Za-z0-9]{27}$", "ksuid"), ["0ujsswThIGTUYm2K8FjOOfXtY1K"], ["0ujsswThIGTUYm2K8FjOOfXtY1-"])
add("ipv4", text(rf"^(?:{BYTE}\.){{3}}{BYTE}$", "ipv4"), ["192.168.0.1"], ["256.1.1.1", "1.2.3"])
add("ipv6", text(rf"^{IPV6}$", "ipv6"), ["::1", "2001:db8::1", "1:2:3:4:5:6:7:8"], ["1:2", ":::"])
add("cidrv4", text(rf"^({BYTE}\.){{3}}{BYTE}\/([0-9]|[1-2][0-9]|3[0-2])$", "cidrv4"), ["10.0.0.0/8"],
    ["10.0.0.0/33", "10.0.0.0"])
add("cidrv6", text(r"^(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|::|([0-9a-fA-F]{1,4})?::([0-9a-fA-F]{1,4}:?){0,6})\/"
                   r"(12[0-8]|1[01][0-9]|[1-9]?[0-9])$", "cidrv6"), ["2001::/32", "::1/128"], ["2001::/129"])
add("base64", text(BASE64, "base64", contentEncoding="base64"), ["", "aGVsbG8="], ["aGVsbG8", "a"])
add("base64url", text("^[A-Za-z0-9_-]*$", "base64url", contentEncoding="base64url"), ["", "aGVsbG8"], ["a+b="])
add("jwt", text(format="jwt"), ["eyJhbGciOiJIUzI1NiJ9.e30.abc"], [1])
add("e164", text(r"^\+[1-9]\d{6,14}$", "e164"), ["+15555555555"], ["+0123", "5555555"])
add("hostname", text(HOSTNAME, "hostname"), ["example.com", "a-b.example.org"], ["-a.com", "a..b"])
add("domain", text(r"^([a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,}$"), ["example.com"], ["example"])
add("date", text(f"^{DATE}$", "date"), ["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-13-01"])
add("time", text(f"^{TIME}$"), ["12:30", "12:30:05.25"], ["24:00", "1:00"])
add("datetime", text(rf"^{DATE}T(?:{TIME}(?:Z))$", "date-time"), ["2024-02-29T12:30:05Z", "2020-01-01T00:00:00.123Z"],
    ["2024-02-30T12:30:05Z", "2024-02-29T12:30:05+01:00"])
add("datetime with an offset", text(rf"^{DATE}T(?:{TIME}(?:Z|([+-](?:[01]\d|2[0-3]):[0-5]\d)))$", "date-time"),
    ["2024-02-29T12:30:05+02:00"], ["2024-02-29T12:30:05", "2024-02-29"])
add("datetime with a precision", text(rf"^{DATE}T(?:{CLOCK}:[0-5]\d\.\d{{3}}(?:Z))$", "date-time"),
    ["2024-02-29T12:30:05.123Z"], ["2024-02-29T12:30:05Z"])
add("duration", text(DURATION, "duration"), ["P3D", "PT5M", "P1Y2M3DT4H5M6S", "P2W"], ["P", "3D", "P1W2D", "PT"])
add("hex", text("^[0-9a-fA-F]*$", "hex"), ["", "ff0A"], ["g"])
add("sha256 in hex", text("^[0-9a-fA-F]{64}$", "sha256_hex"), ["ab" * 32], ["ab"])
add("mac", text(r"^(?:[0-9A-F]{2}:){5}[0-9A-F]{2}$|^(?:[0-9a-f]{2}:){5}[0-9a-f]{2}$", "mac"), ["00:1A:2B:3C:4D:5E"],
    ["00:1A:2B:3C:4D"])
add("json string", text(format="json-string"), ["{}"], [1])
add("template literal", text(r"^(?:hello, )[\s\S]{0,}$"), ["hello, you"], ["hello"])
add("template of a unit", text(r"^-?\d+(?:\.\d+)?(?:px|em|rem|%)$"), ["1.5em", "10px"], ["em", "10"])
add("escaped code points", text(r"^[\u{1F600}-\u{1F64F}]+$"), ["😀😃"], ["a", "🚀"])
add("letters of Unicode", text(r"^\p{L}[\p{L}\p{M}'-]*$"), ["Zoë", "Łukasz", "名前"], ["1a", ""])
add("a script", text(r"^\p{Script=Greek}+$"), ["αβγ"], ["abc"])
add("named groups", text(r"^(?<year>\d{4})-(?<month>\d{2})$"), ["2024-02"], ["24-02"])
add("password", text(r"^(?=.*[A-Z])(?=.*[a-z])(?=.*\d)(?!.*\s).{8,}$"), ["Passw0rd!"], ["password", "Pass word1"])
add("slug", text(r"^[a-z0-9]+(?:-[a-z0-9]+)*$", maxLength=20), ["a-b-c1"], ["a--b", "-a", "a" * 21])
add("no double hyphen", text(r"^(?:(?!--)[a-z-])+$", maxLength=10), ["a-b"], ["a--b", ""])
add("whole word", text(r"\bcat\b"), ["a cat!"], ["concat"])
add("a word further on", text(r"^(?=.*\bcat\b)[a-z ]{3,12}$"), ["a cat x", "cat"], ["concat", "dog"])
add("a part of a list", text(r"(^|,)\s*yes(,|$)"), ["yes", "a,yes", "yes,b", "a, yes,b"], ["yess", "ayes"])
add("a hyphen behind a class", text(r"^[\w-.]+@[\d-x]$"), ["a.b-@-", "a@x"], ["a@y", "@1"])
add("any character", text(r"^a[^]b$"), ["a\nb", "a😀b"], ["ab"])
add("not at the end", text(r"^[a-z-]{1,9}(?<!-)$"), ["a-b"], ["ab-"])

# Objects.
add("object", obj(name=STRING, age=INT), [{"name": "a", "age": 1}], [{"name": "a"}, {"name": "a", "age": 1, "b": 2}])
add("optional", obj(("nick",), name=STRING, nick=STRING), [{"name": "a"}, {"name": "a", "nick": "b"}],
    [{"nick": "b"}, {"name": "a", "nick": None}])
add("nullable", obj(a=nullable(STRING), b=nullable(INT)), [{"a": None, "b": 1}], [{"a": 1, "b": 1}, {"a": None}])
add("nullish with a default", obj(("a",), a=nullable(STRING) | {"default": None}, b={"default": 3, **INT}),
    [{"b": 3}, {"a": None, "b": 4}], [{"a": 1, "b": 3}])
add("input", obj(("b",), closed=False, a=STRING, b={"default": 1, "type": "number"}), [{"a": "x"}, {"a": "x", "b": 2}],
    [{}, {"a": 1}])
add("loose", obj(a=STRING) | {"additionalProperties": {}}, [{"a": "x", "more": [1]}], [{"more": 1}])
add("catchall", obj(a=STRING) | {"additionalProperties": NUMBER}, [{"a": "x", "n": 1}], [{"a": "x", "n": "y"}])
add("nested", obj(user=obj(name=STRING, address=obj(("zip",), street=STRING, zip=text(r"^\d{5}$")))),
    [{"user": {"name": "n", "address": {"street": "s", "zip": "12345"}}}], [{"user": {"name": "n", "address": {}}}])
add("metadata", obj(a={"id": "A", "title": "a", "description": "d", "examples": ["x"], "deprecated": True, **STRING},
                    b={**INT, "readOnly": True}), [{"a": "x", "b": 1}], [{"a": "x"}],
    title="T", description="An object", id="thing")
add("empty object", {"type": "object", "properties": {}, "additionalProperties": False}, [{}], [{"a": 1}, []])
add("intersection", {"allOf": [obj(closed=False, a=STRING), obj(closed=False, b=NUMBER)]}, [{"a": "x", "b": 1}],
    [{"a": "x"}, {"b": 1}])

# Arrays, tuples, records.
add("array", arr(STRING, minItems=1, maxItems=3), [["a"], ["a", "b", "c"]], [[], ["a"] * 4, [1]])
add("array of objects", arr(obj(id=INT, tags=arr(STRING))), [[], [{"id": 1, "tags": []}]], [[{"id": 1}]])
add("tuple", tup(STRING, NUMBER),
    [["a", 1]], [[1, "a"]])
add("tuple with a rest", tup(STRING, rest=NUMBER), [["a"], ["a", 1, 2]], [["a", "b"]])
add("record", record(STRING, INT), [{}, {"a": 1}], [{"a": "x"}])
add("record of an enum", record(enum("id", "name"), STRING, required=["id", "name"]), [{"id": "1", "name": "n"}],
    [{"id": "1"}, {"id": "1", "name": "n", "x": "y"}])
add("partial record", record(enum("id", "name"), STRING), [{}, {"name": "n"}], [{"x": "y"}])
add("record of a pattern", record(text(r"^[a-z]+_id$", minLength=5), union(STRING, NUMBER)), [{"user_id": 1}],
    [{"user": 1}, {"a_id": 1}])
add("record of numbers", record(text(r"^-?\d+(?:\.\d+)?$"), STRING), [{"1": "a"}], [{"a": "b"}])
add("set written as an array", arr(STRING, uniqueItems=True), [["a", "b"]], [["a", "a"]])

# Unions.
add("union", union(STRING, NUMBER, BOOLEAN), ["a", 1, True], [None, []])
add("union of objects", union(obj(a=STRING), obj(b=NUMBER)), [{"a": "x"}, {"b": 1}], [{}, {"a": "x", "b": 1}])
add("discriminated union", one_of(obj(status=const("success"), data=STRING), obj(status=const("failed"), error=STRING)),
    [{"status": "success", "data": "d"}, {"status": "failed", "error": "e"}],
    [{"status": "success", "error": "e"}, {"status": "other"}])
add("nested discriminated unions", one_of(
    obj(kind=const("a"), n=INT),
    one_of(obj(kind=const("b"), code=const(400)), obj(kind=const("b"), code=const(401), note=nullable(STRING)))),
    [{"kind": "a", "n": 1}, {"kind": "b", "code": 400}, {"kind": "b", "code": 401, "note": None}],
    [{"kind": "b", "code": 402}, {"kind": "c"}])
add("list of a discriminated union", obj(steps=arr(one_of(
    obj(tool=const("search"), args=obj(("limit",), query=text(minLength=1), limit={**INT, "default": 10})),
    obj(tool=const("stop"))), minItems=1)),
    [{"steps": [{"tool": "search", "args": {"query": "q"}}, {"tool": "stop"}]}], [{"steps": []}, {"steps": [{}]}])
add("exclusive union", one_of(STRING, NUMBER), ["a", 1], [None])

# References.
add("recursive", {"$ref": "#/$defs/__schema0", "$defs": {
    "__schema0": obj(name=STRING, children=arr(ref("__schema0")))}},
    [{"name": "a", "children": [{"name": "b", "children": []}]}], [{"name": "a"}, {"name": "a", "children": [1]}])
add("recursive at the root", obj(value=INT, next=nullable({"$ref": "#"})),
    [{"value": 1, "next": {"value": 2, "next": None}}], [{"value": 1, "next": 3}])
add("mutually recursive", {"$ref": "#/$defs/User", "$defs": {
    "User": {"id": "User", **obj(email=STRING, posts=arr(ref("Post")))},
    "Post": {"id": "Post", **obj(("author",), title=STRING, author=ref("User"))}}},
    [{"email": "e", "posts": [{"title": "t", "author": {"email": "f", "posts": []}}]}], [{"email": "e", "posts": [{}]}])
add("shared", obj(first={"$ref": "#/$defs/__shared/$defs/schema0"},
                  second={"$ref": "#/$defs/__shared/$defs/schema0"}) | {
    "$defs": {"__shared": {"$id": "__shared", "$defs": {"schema0": obj(street=STRING)}}}},
    [{"first": {"street": "a"}, "second": {"street": "b"}}], [{"first": {"street": "a"}}])
add("json", {"$ref": "#/$defs/__schema0", "$defs": {"__schema0": union(
    STRING, NUMBER, BOOLEAN, NULL, arr(ref("__schema0")), record(STRING, ref("__schema0")))}},
    [None, [1, {"a": "b"}]], [])
add("reference with metadata", obj(home={**ref("Address"), "description": "where", "title": "Home"},
                                   work=nullable(ref("Address"))) | {
    "$defs": {"Address": {"id": "Address", **obj(("zip",), city=STRING, zip=text(r"^\d{5}(?:-\d{4})?$"))}}},
    [{"home": {"city": "c"}, "work": None}], [{"home": {}, "work": None}])

# Whole answers.
add("order", obj(
    ("note",), id=text(UUID, "uuid"), customer=obj(email=text(EMAIL, "email"), phone=nullable(text(r"^\+[1-9]\d{6,14}$",
                                                                                                "e164"))),
    lines=arr(obj(sku=text("^[A-Z]{3}-[0-9]{4}$"), count={"type": "integer", "exclusiveMinimum": 0, "maximum": SAFE},
                  price={"type": "number", "minimum": 0, "multipleOf": 0.01}), minItems=1, maxItems=20),
    placed=text(rf"^{DATE}T(?:{TIME}(?:Z))$", "date-time"), status=enum("open", "paid", "sent"),
    note=text(maxLength=80)),
    [{"id": "123e4567-e89b-42d3-a456-426614174000", "customer": {"email": "a@example.com", "phone": None},
      "lines": [{"sku": "ABC-1234", "count": 1, "price": 9.99}], "placed": "2024-02-29T12:30:05Z", "status": "open"}],
    [{"id": "x"}])
add("verdict", obj(reasoning=text(maxLength=400, description="first"), score={"type": "integer", "minimum": 1,
                                                                              "maximum": 5},
                   labels=arr(enum("clear", "short", "wrong"), maxItems=3), confidence={"type": "number", "minimum": 0,
                                                                                      "maximum": 1}),
    [{"reasoning": "r", "score": 3, "labels": ["clear"], "confidence": 0.5}],
    [{"reasoning": "r", "score": 6, "labels": [], "confidence": 0.5}])
add("tool call", obj(name=enum("get_weather", "get_time"), arguments=union(
    obj(("unit",), city=text(minLength=1), unit={"default": "c", **enum("c", "f")}), obj(zone=text(r"^\w+\/\w+$")))),
    [{"name": "get_time", "arguments": {"zone": "Europe/Rome"}}, {"name": "get_weather", "arguments": {"city": "R"}}],
    [{"name": "x", "arguments": {"city": "R"}}, {"name": "get_time", "arguments": {}}])
add("settings", obj(("theme", "limits"), theme={"default": "dark", **enum("dark", "light")},
                    limits=record(STRING, INT) | {"default": {}},
                    window=tup(INT, INT), features=record(enum("a", "b"), BOOLEAN, required=["a", "b"])),
    [{"window": [1, 2], "features": {"a": True, "b": False}}], [{"window": [1, "2"], "features": {"a": True}}])
