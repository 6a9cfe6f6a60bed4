"""Public knowledge of a recording, checked fact by fact.

Recorders state such facts and files hold them; both are checked here. All numbers are finite and
less than 2**63. Sizes of an attack's arrays are at most ``FREE``, plus one for each byte of the
files: a few bytes cannot cause a large allocation.
"""

from collections.abc import Callable, Mapping
from math import isfinite, prod
from typing import Any, NamedTuple

from secure_fedrec.blocks import BlockKind
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError, MisfitError, TranscriptError, UnstatedFactError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.traits import TRAITS

FREE = 2**20
"""Clients, items and rows of a table that a recording of any size may state."""
_MOST = 2**63 - 1
_MOST_WIDE = 64
"""Values of a table, per row that a recording may have."""
_MOST_LEVELS = 100_000


class Form(NamedTuple):
    """The facts about every block in the public knowledge."""

    codec: FixedPoint
    n_clients: int
    n_items: int | None
    denoisers: int | None
    noise: str | None
    rows: int | None
    width: int | None


def form_of(public: Mapping[str, Any], *, held: int) -> Form:
    """Check the public knowledge as far as every attack relies on it.

    Args:
        public: JSON values by name.
        held: bytes of the recording.

    Raises:
        TranscriptError: a fact is of another form, or larger than the recording can be.
    """
    most = FREE + held
    try:
        _require_numbers(public)
        codec = FixedPoint(**_table(public, "ring"))
        n_clients = _whole(public, "n_clients", 1, most)
        n_items = _whole(public, "n_items", 1, most) if "n_items" in public else None
        if not _words(public.get("left_out", [])):
            raise ValueError("left_out must be a list of words")
        if "negatives" in public:
            _whole(public, "negatives", 0, most)
        if "rating_levels" in public:
            _levels(public["rating_levels"])
        for name, (fits, what) in _DATA.items():
            _require(public, name, fits, what)
        algorithm, protection = _table(public, "algorithm"), _table(public, "protection")
        for name, (fits, what) in _ALGORITHM.items():
            _require(algorithm, name, fits, what, whose="algorithm.")
        _require(protection, "layers", _is_list, "a list", whose="protection.")
        _traits("algorithm", algorithm.get("traits") or {}, n_clients)
        denoisers = _traits("protection", protection.get("traits") or {}, n_clients)
        noise = (protection.get("traits") or {}).get("noise")
        blocks = public.get("blocks")
        rows, width = (None, None) if blocks is None else _blocks(blocks, codec, n_items, most)
    except (ConfigError, TypeError, KeyError, ValueError, UnstatedFactError) as wrong:
        raise TranscriptError(f"transcript.json: {wrong}") from wrong
    return Form(codec, n_clients, n_items, denoisers, noise, rows, width)


def require_counts(counts: IntArray, form: Form) -> None:
    """Refuse impossible counts of a sum: without noise they are numbers of clients.

    Raises:
        MisfitError: noise is stated to be absent, but a count is below 0 or above the number of
            clients.
    """
    exact = form.noise == "none"
    if exact and ((counts < 0) | (counts > form.n_clients)).any():
        raise MisfitError(f"counts are from 0 to {form.n_clients} where no noise is added")


def _require_numbers(public: Mapping[str, Any]) -> None:
    """Refuse numbers that cannot be computed with, at any depth."""
    waiting: list[tuple[str, Any]] = list(public.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, float | int) and not _is_number(value) and not _is_bool(value):
            said = "is not finite" if isinstance(value, float) else "is beyond 2**63"
            raise ValueError(f"{name}: a number {said}")
        if isinstance(value, Mapping):
            waiting += ((f"{name}.{key}", each) for key, each in value.items())
        elif isinstance(value, list | tuple):
            waiting += ((name, each) for each in value)


def _require(
    known: Mapping[str, Any], name: str, fits: Callable[[Any], bool], what: str, *, whose: str = ""
) -> None:
    """Refuse a stated fact of the wrong form."""
    value = known.get(name)
    if value is not None and not fits(value):
        raise ValueError(f"{whose}{name} must be {what}")


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) <= _MOST
    return type(value) is float and isfinite(value)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_word(value: Any) -> bool:
    return isinstance(value, str)


def _words(told: Any) -> bool:
    return isinstance(told, list) and all(isinstance(each, str) for each in told)


def _is_place(value: Any) -> bool:
    """The place where private values enter a model."""
    told = isinstance(value, dict) and {"first", "layer"} <= value.keys()
    return told and _is_whole(value["first"]) and isinstance(value["layer"], str)


def _are_segments(value: Any) -> bool:
    """Arrays that lie somewhere in a vector of parameters."""
    return isinstance(value, list) and all(map(_is_segment, value))


def _is_segment(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    shape, ends = value.get("shape"), (value.get("start"), value.get("stop"))
    if not isinstance(shape, list | tuple) or not all(map(_is_whole, (*shape, *ends))):
        return False
    return bool(prod(shape) == value["stop"] - value["start"])


def _is_local(value: Any) -> bool:
    """Settings of local training: numbers, words and booleans; facts may be missing."""
    return isinstance(value, dict) and all(
        _is_number(value.get(name, 0)) for name in ("learning_rate", "momentum", "epochs")
    )


def _is_sizes(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_whole, value.values()))


_NUMBER = (_is_number, "a number")
_DATA: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "item_table": (_is_word, "a word"),
    "private_input": (_is_place, "a table with first, a position, and layer, a name"),
    "model_hidden_from": (_words, "a list of words"),
    "cohort": (lambda value: isinstance(value, dict), "a table"),
}
_ALGORITHM: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_is_word, "a word"),
    "regularization": _NUMBER,
    "temperature": _NUMBER,
    "init_scale": _NUMBER,
    "learning_rate": _NUMBER,
    "biases": (_is_bool, "true or false"),
    "weight_position": (_is_whole, "a position"),
    "federated": (_are_segments, "a list of arrays: name, shape, start and stop"),
    "private": (_are_segments, "a list of arrays: name, shape, start and stop"),
    "private_input": _DATA["private_input"],
    "local": (_is_local, "a table of settings"),
    "table": (_is_sizes, "a table of sizes"),
}


def _table(public: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = public.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be a table")
    return found


def _whole(known: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = known.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} = {value!r} must be a whole number from {low} to {high}")
    return value


def _levels(told: Any) -> None:
    if not isinstance(told, list) or not told or not all(map(_is_number, told)):
        raise ValueError("rating_levels must be a list of finite numbers")
    if len(told) < 2:
        raise ValueError("rating_levels holds one level: leave it out for implicit feedback")
    if len(told) > _MOST_LEVELS or sorted(set(told)) != told:
        raise ValueError("rating_levels must ascend")
    if not isfinite(float(told[-1]) - float(told[0])):
        raise ValueError("rating_levels lie too far apart")


def _traits(whose: str, told: Any, n_clients: int) -> int | None:
    """Check traits; how many denoisers they state."""
    if not isinstance(told, dict):
        raise ValueError(f"{whose}.traits must be a table")
    for name, allowed in TRAITS.items():
        if told.get(name) not in (None, *allowed):
            raise ValueError(f"{whose}.traits.{name} = {told[name]!r}, not one of {allowed}")
    _require(told, "ratio", _is_number, "a number", whose=f"{whose}.traits.")
    denoisers = told.get("denoisers")
    known = denoisers is None or (
        isinstance(denoisers, list) and all(_is_whole(e) and e < n_clients for e in denoisers)
    )
    if not known:
        raise ValueError(f"{whose}.traits.denoisers must be numbers of clients")
    return len(denoisers) if denoisers else None


def _blocks(told: Any, codec: FixedPoint, n_items: int | None, most: int) -> tuple[int, int]:
    """Rows and width of the table of all blocks, which lie one below the other."""
    if not isinstance(told, list) or not told:
        raise ValueError("blocks must be a list of tables")
    rows, width = 0, 1
    for block in told:
        if not isinstance(block, dict) or not isinstance(block.get("name"), str):
            raise ValueError("a block must be a table with a name")
        sizes = {key: _whole(block, key, 1, 2**31) for key in ("size", "rows", "width")}
        if block.get("first") != rows:
            raise ValueError(f"block {block['name']} must begin at row {rows}")
        kind = BlockKind(block.get("kind"))
        held = sizes["rows"] * sizes["width"] if kind is BlockKind.FLAT else sizes["rows"]
        if sizes["size"] > held or (kind is not BlockKind.FLAT and sizes["size"] != held):
            raise ValueError(f"block {block['name']} is too small for {sizes['size']} values")
        if kind is BlockKind.ITEMS and n_items not in (None, sizes["size"]):
            raise ValueError(f"block {block['name']} has {sizes['size']} rows of {n_items} items")
        FixedPoint(bits=codec.bits, fraction_bits=block["fraction_bits"], clip=block["clip"])
        rows, width = rows + sizes["rows"], max(width, sizes["width"])
    if rows > most or rows * width > most * _MOST_WIDE:
        raise ValueError(f"blocks have {rows} rows of {width}, more than such a recording can hold")
    return rows, width
