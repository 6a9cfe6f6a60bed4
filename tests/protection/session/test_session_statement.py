"""What a round agrees on: every field counts, and is read as it was written or not at all."""

import re
import struct
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.session.statement import Later, Purpose, Statement
from tests.statements import about

HASHES = ("federation", "state")
NAMES = [field.name for field in fields(Statement)]
ONCE = ("federation", "state", "purpose")
TYPES = get_type_hints(Statement)
ANY: dict[type, st.SearchStrategy[Any]] = {
    bytes: st.binary(max_size=80),
    str: st.text(max_size=40).filter(lambda text: text.isprintable()),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    Purpose: st.sampled_from(Purpose),
}
FIXED = st.binary(min_size=32, max_size=32).filter(any)


def any_value(name: str) -> st.SearchStrategy[Any]:
    """Values of a field, by its type: a field that joins the class has some by joining."""
    return FIXED if name in HASHES else ANY[TYPES[name]]


statements = st.builds(Statement, **{name: any_value(name) for name in NAMES})
names = st.sampled_from(NAMES)


def bits(name: str, value: Any) -> Any:
    """A value as it is bound: -0.0 and 0.0 are two."""
    return struct.pack("<d", value) if TYPES[name] is float else value


def altered(stated: Statement, name: str, data: st.DataObject) -> Statement:
    """A statement that differs in one field."""
    value = data.draw(any_value(name))
    assume(bits(name, value) != bits(name, getattr(stated, name)))
    return replace(stated, **{name: value})


@given(stated=statements, name=names, data=st.data())
def test_a_field_that_differs_makes_another_digest(
    stated: Statement, name: str, data: st.DataObject
) -> None:
    other = altered(stated, name, data)
    assert other.encoded != stated.encoded
    assert other.digest != stated.digest
    assert len({stated.digest, stated.once, stated.later.digest}) == 3
    assert (len(stated.digest), len(stated.once), len(stated.later.digest)) == (32, 32, 32)


@pytest.mark.parametrize("name", NAMES)
@given(stated=statements, data=st.data())
def test_what_is_revealed_for_once_is_of_federation_state_and_purpose_alone(
    name: str, stated: Statement, data: st.DataObject
) -> None:
    other = altered(stated, name, data)
    assert (other.once == stated.once) == (name not in ONCE)
    assert (other.later.digest == stated.later.digest) == (name != "federation")
    assert (other.agreed == stated.agreed) is False


@given(stated=statements, other=statements)
def test_equal_statements_have_equal_digests_and_no_others_do(
    stated: Statement, other: Statement
) -> None:
    copy = replace(stated)
    assert copy.agreed == stated.agreed == (stated.digest, stated.once)
    same = all(
        bits(name, getattr(stated, name)) == bits(name, getattr(other, name)) for name in NAMES
    )
    assert (other.digest == stated.digest) == same


@given(stated=statements)
def test_a_statement_comes_back_as_it_was(stated: Statement) -> None:
    found = Statement.decode(stated.encoded)
    assert found == stated
    assert found.encoded == stated.encoded
    assert found.agreed == stated.agreed
    assert type(found.purpose) is Purpose
    for name in NAMES:
        assert bits(name, getattr(found, name)) == bits(name, getattr(stated, name))


# What is not a statement.


def field(name: str, kind: int, value: bytes) -> bytes:
    """A field as the module's description has it."""
    return bytes([len(name)]) + name.encode() + struct.pack("<BI", kind, len(value)) + value


def parts(stated: Statement) -> list[bytes]:
    """The fields of an encoding, by its description: version, then one after the other."""
    data, found = stated.encoded, []
    at = 1
    while at < len(data):
        start = at
        at += 1 + data[at]
        (size,) = struct.unpack_from("<I", data, at + 1)
        at += 5 + size
        found.append(data[start:at])
    assert [part[1 : 1 + part[0]].decode() for part in found] == NAMES
    return found


@given(stated=statements, cut=st.integers(0, 10_000), more=st.binary(min_size=1, max_size=9))
def test_bytes_that_are_missing_or_too_many_are_refused(
    stated: Statement, cut: int, more: bytes
) -> None:
    data = stated.encoded
    for wrong in (data[: cut % len(data)], data + more):
        with pytest.raises(ProtocolError):
            Statement.decode(wrong)


@given(stated=statements, version=st.integers(0, 255))
def test_another_version_is_refused(stated: Statement, version: int) -> None:
    assume(version != 1)
    with pytest.raises(ProtocolError, match="no statement of version 1"):
        Statement.decode(bytes([version]) + stated.encoded[1:])


@given(stated=statements, name=names)
def test_a_missing_field_is_refused(stated: Statement, name: str) -> None:
    left = [part for part, each in zip(parts(stated), NAMES, strict=True) if each != name]
    with pytest.raises(ProtocolError, match=f"other fields: {name}$"):
        Statement.decode(b"\x01" + b"".join(left))


@given(
    stated=statements,
    place=st.integers(0, len(NAMES)),
    name=st.from_regex(r"[a-z]{1,9}", fullmatch=True).filter(lambda name: name not in NAMES),
    kind=st.integers(0, 255),
    value=st.binary(max_size=9),
)
def test_an_unknown_field_is_refused(
    stated: Statement, place: int, name: str, kind: int, value: bytes
) -> None:
    found = parts(stated)
    found.insert(place, field(name, kind, value))
    with pytest.raises(ProtocolError, match=f"other fields: {name}$"):
        Statement.decode(b"\x01" + b"".join(found))


@given(stated=statements, order=st.permutations(range(len(NAMES))), name=names)
def test_fields_in_another_order_or_twice_are_refused(
    stated: Statement, order: list[int], name: str
) -> None:
    found = parts(stated)
    assert Statement.decode(b"\x01" + b"".join(found)) == stated
    shuffled = [found[place] for place in order]
    assume(shuffled != found)
    for wrong in (shuffled, [*found, found[NAMES.index(name)]]):
        with pytest.raises(ProtocolError):
            Statement.decode(b"\x01" + b"".join(wrong))


@pytest.mark.parametrize("name", NAMES)
@given(
    stated=statements,
    kind=st.sampled_from([0, 1, 2, 3]) | st.integers(4, 255),
    value=st.binary(max_size=9) | st.text(min_size=32, max_size=32).map(str.encode) | FIXED,
)
def test_a_field_of_another_type_or_size_is_refused(
    name: str, stated: Statement, kind: int, value: bytes
) -> None:
    own = {bytes: 0, str: 1, int: 2, float: 3, Purpose: 2}[TYPES[name]]
    sizes = {int: 8, float: 8, Purpose: 8}
    assume(
        kind != own or len(value) != sizes.get(TYPES[name], 32 if name in HASHES else len(value))
    )
    found = parts(stated)
    found[NAMES.index(name)] = field(name, kind, value)
    with pytest.raises(ProtocolError, match="a field that cannot be"):
        Statement.decode(b"\x01" + b"".join(found))


def test_values_that_no_statement_has_are_refused() -> None:
    stated = replace(about(b"s" * 32), code="code")
    for name, kind, value in (
        ("federation", 0, bytes(32)),
        ("state", 0, bytes(32)),
        ("purpose", 2, bytes(8)),
        ("purpose", 2, (len(Purpose) + 1).to_bytes(8, "little")),
        ("code", 1, b"\xff"),
    ):
        found = parts(stated)
        found[NAMES.index(name)] = field(name, kind, value)
        with pytest.raises(ProtocolError, match="a field that cannot be"):
            Statement.decode(b"\x01" + b"".join(found))


@given(data=st.binary(max_size=200))
def test_noise_is_refused(data: bytes) -> None:
    for wrong in (data, b"\x01" + data):
        with pytest.raises(ProtocolError):
            Statement.decode(wrong)


@pytest.mark.parametrize("name", HASHES)
@pytest.mark.parametrize("value", [b"", bytes(32), b"x" * 31, b"x" * 33])
def test_a_federation_and_a_state_are_hashes(name: str, value: bytes) -> None:
    with pytest.raises(ConfigError) as refused:
        Statement(**{"federation": b"f" * 32, "state": b"s" * 32, name: value})  # type: ignore[arg-type]
    assert refused.value.key == f"statement.{name}"


# Of another host.


@given(stated=statements, other=statements, differ=st.sets(names))
def test_the_fields_that_differ_are_named_and_no_others(
    stated: Statement, other: Statement, differ: set[str]
) -> None:
    told = replace(stated, **{name: getattr(other, name) for name in differ})
    really = [
        name
        for name in NAMES
        if bits(name, getattr(told, name)) != bits(name, getattr(stated, name))
    ]
    if not really:
        stated.require_same(told.encoded)
        return
    with pytest.raises(ProtocolError) as refused:
        stated.require_same(told.encoded)
    _, _, said = str(refused.value).partition("than this host: ")
    assert re.sub(r"\(.*?, here .*?\)(?=, [a-z]+ \(|$)", "", said).replace(" ", "") == ",".join(
        really
    )


def test_it_says_what_both_sides_state() -> None:
    own = replace(about(b"s" * 32), round=3, code="one 1.0", instructions=b"\x01" * 32)
    told = replace(own, round=4, code="one 1.1", instructions=b"", price=0.5)
    with pytest.raises(ProtocolError) as refused:
        own.require_same(told.encoded)
    assert str(refused.value).endswith(
        "than this host: round (4, here 3), instructions (empty, here 0101010101010101), "
        "code ('one 1.1', here 'one 1.0'), price (0.5, here 0.0)"
    )


@given(stated=statements, name=names)
def test_fields_of_another_release_are_named_as_well(stated: Statement, name: str) -> None:
    found = parts(stated)
    gone = b"\x01" + b"".join(found[: NAMES.index(name)] + found[NAMES.index(name) + 1 :])
    with pytest.raises(ProtocolError, match=rf"than this host: {name} \(missing, here "):
        stated.require_same(gone)
    newer = stated.encoded + field("fresh", 1, b"air")
    with pytest.raises(ProtocolError, match=r"than this host: fresh \('air', here missing\)$"):
        stated.require_same(newer)


@given(stated=statements, data=st.binary(max_size=60))
def test_no_noise_is_the_same(stated: Statement, data: bytes) -> None:
    for wrong in (data, b"\x01" + data, stated.encoded + data if data else b""):
        with pytest.raises(ProtocolError):
            stated.require_same(wrong)


# What is known later.


@given(one=FIXED, other=FIXED)
def test_what_comes_later_is_of_a_federation(one: bytes, other: bytes) -> None:
    stated = Statement(federation=one, state=b"s" * 32)
    assert stated.later == Later(federation=one)
    assert (Later(federation=other).digest == stated.later.digest) == (one == other)
    assert stated.later.digest != stated.digest


@pytest.mark.parametrize("value", [None, [1], (1, 2), {}])
@pytest.mark.parametrize("name", ["round", "cohort", "code", "price"])
def test_what_has_no_encoding_has_no_digest(name: str, value: Any) -> None:
    told: dict[str, Any] = {"federation": b"f" * 32, "state": b"s" * 32, name: value}
    with pytest.raises((TypeError, ConfigError)):
        _ = Statement(**told).digest
