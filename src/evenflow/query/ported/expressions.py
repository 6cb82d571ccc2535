"""Catalyst's expressions as Spark SQL again, which is what Evenflow's boxes understand.

Only what is known to mean the same is written: operators by their signs, functions that Evenflow has by their names. What was replaced by
the analyser is written as what replaced it. Everything else is a `NotPortable`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from evenflow.errors import NotPortable, QueryError, TypeMismatch
from evenflow.query.duration import duration_us
from evenflow.query.ported.structures import quoted_text, updated
from evenflow.query.ported.tree import Expression, read_expression, type_of
from evenflow.query.sql.composed import WITH_NULLS
from evenflow.query.sql.functions import FUNCTIONS
from evenflow.query.sql.intervals import UNITS_US
from evenflow.query.sql.lambdas import HIGHER
from evenflow.query.sql.types import name_of
from evenflow.stream.collations import collation_of
from evenflow.stream.schema import quoted, spark_type

_SIGNS: Final = {
    "Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "IntegralDivide": "DIV", "Remainder": "%", "EqualTo": "=",
    "EqualNullSafe": "<=>", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "And": "AND",
    "Or": "OR", "BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^", "SubtractTimestamps": "-",
    "RLike": "RLIKE",
}  # fmt: skip
_NAMES: Final = {
    "ConcatWs": "concat_ws", "DayOfMonth": "day", "StringReplace": "replace", "StringSplit": "split", "RegExpExtract": "regexp_extract",
    "StringInstr": "instr", "StringLocate": "locate", "StringLPad": "lpad", "StringRPad": "rpad", "SubstringIndex": "substring_index",
    "DayOfWeek": "dayofweek", "DayOfYear": "dayofyear", "WeekOfYear": "weekofyear", "DateAdd": "date_add", "DateSub": "date_sub",
    "DateDiff": "datediff", "TruncTimestamp": "date_trunc", "StringRepeat": "repeat",
    "Logarithm": "log", "TruncDate": "trunc", "SecondsToTimestamp": "timestamp_seconds", "MillisToTimestamp": "timestamp_millis",
    "MicrosToTimestamp": "timestamp_micros", "ArrayTransform": "transform", "ArrayFilter": "filter", "ArrayExists": "exists",
    "ArrayForAll": "forall", "ZipWith": "zip_with", "ArrayContains": "array_contains", "ArrayPosition": "array_position",
    "ArrayDistinct": "array_distinct", "ArrayUnion": "array_union", "ArrayIntersect": "array_intersect", "ArrayExcept": "array_except",
    "ArrayMin": "array_min", "ArrayMax": "array_max", "ArrayRemove": "array_remove", "ArrayJoin": "array_join", "SortArray": "sort_array",
    "ArraysOverlap": "arrays_overlap", "ArrayRepeat": "array_repeat", "CreateArray": "array", "ArrayAppend": "array_append",
    "ArrayPrepend": "array_prepend", "GetJsonObject": "get_json_object", "LengthOfJsonArray": "json_array_length",
    "JsonObjectKeys": "json_object_keys", "DateFormatClass": "date_format", "GetTimestamp": "to_timestamp", "FromUnixTime": "from_unixtime",
    "UnixTimestamp": "unix_timestamp", "ToUnixTimestamp": "unix_timestamp", "MakeDate": "make_date", "NextDay": "next_day",
    "MonthsBetween": "months_between", "DayName": "dayname", "MonthName": "monthname", "StringTranslate": "translate",
    "RegExpCount": "regexp_count", "RegExpExtractAll": "regexp_extract_all", "SplitPart": "split_part", "SoundEx": "soundex",
    "UnixDate": "unix_date", "AddMonths": "add_months", "LastDay": "last_day",
    "UnixSeconds": "unix_seconds", "UnixMillis": "unix_millis", "UnixMicros": "unix_micros",
    "GetMapValue": "element_at", "CreateMap": "map", "CreateNamedStruct": "named_struct", "MapKeys": "map_keys",
    "MapValues": "map_values", "MapEntries": "map_entries", "MapFromArrays": "map_from_arrays", "MapFromEntries": "map_from_entries",
    "MapFilter": "map_filter", "TransformKeys": "transform_keys", "TransformValues": "transform_values", "MapConcat": "map_concat",
    "MapContainsKey": "map_contains_key", "ElementAt": "element_at", "MapZipWith": "map_zip_with", "StringToMap": "str_to_map",
    "ArrayInsert": "array_insert", "UnBase64": "unbase64", "StringDecode": "decode", "FindInSet": "find_in_set", "BitLength": "bit_length",
    "Chr": "char", "StringSpace": "space", "FormatNumber": "format_number", "FormatString": "format_string", "Luhncheck": "luhn_check",
    "RegExpInStr": "regexp_instr", "RegExpSubStr": "regexp_substr", "ParseUrl": "parse_url", "UrlEncode": "url_encode",
    "UrlDecode": "url_decode", "MakeTimestamp": "make_timestamp", "MakeDTInterval": "make_dt_interval",
    "DateFromUnixDate": "date_from_unix_date", "FromUTCTimestamp": "from_utc_timestamp", "ToUTCTimestamp": "to_utc_timestamp",
    "ConvertTimezone": "convert_timezone", "ShiftRightUnsigned": "shiftrightunsigned", "WidthBucket": "width_bucket",
    "ToCharacter": "to_char", "ToNumber": "to_number", "JaroWinkler": "jaro_winkler_similarity", "Base32": "to_base32",
    "UnBase32": "from_base32", "RoundCeil": "ceil", "RoundFloor": "floor", "ArrayCompact": "array_compact", "ArraySize": "array_size",
    "BitwiseCount": "bit_count", "BitwiseGet": "bit_get", "ToDegrees": "degrees", "ToRadians": "radians", "EulerNumber": "e",
    "IsValidUTF8": "is_valid_utf8", "MakeValidUTF8": "make_valid_utf8", "ValidateUTF8": "validate_utf8",
    "OctetLength": "octet_length", "UnaryPositive": "positive", "ToBinary": "to_binary",
    "BitmapBitPosition": "bitmap_bit_position", "BitmapBucketNumber": "bitmap_bucket_number", "BitmapCount": "bitmap_count",
    "XPathBoolean": "xpath_boolean", "XPathShort": "xpath_short", "XPathInt": "xpath_int", "XPathLong": "xpath_long",
    "XPathFloat": "xpath_float", "XPathDouble": "xpath_double", "XPathString": "xpath_string", "XPathList": "xpath",
}  # fmt: skip
"""Functions whose class is not called as they are in SQL."""
_COMPARED: Final = (
    "if(and(isnull({0}()), isnull({1}())), 0, if(isnull({0}()), 1, if(isnull({1}()), -1, if(lessthan({0}(), {1}()), -1, "
    "if(greaterthan({0}(), {1}()), 1, 0)))))"
)
"""The function that Spark gives array_sort where none was given."""
_AGGREGATES: Final = {
    "Count": "count", "Sum": "sum", "Average": "avg", "Min": "min", "Max": "max", "StddevSamp": "stddev",
    "CountIf": "count_if", "BoolAnd": "bool_and", "BoolOr": "bool_or", "AnyValue": "any_value", "VarianceSamp": "var_samp",
    "VariancePop": "var_pop", "StddevPop": "stddev_pop", "MaxBy": "max_by", "MinBy": "min_by", "CollectSet": "collect_set",
    "Skewness": "skewness", "Kurtosis": "kurtosis", "Median": "median", "Percentile": "percentile", "Product": "product",
    "BitAndAgg": "bit_and", "BitOrAgg": "bit_or", "BitXorAgg": "bit_xor", "Corr": "corr", "CovPopulation": "covar_pop",
    "CovSample": "covar_samp", "RegrCount": "regr_count", "ApproximatePercentile": "percentile_approx",
    "HyperLogLogPlusPlus": "approx_count_distinct", "First": "first", "Last": "last", "CollectList": "collect_list",
    "RegrSlope": "regr_slope", "RegrIntercept": "regr_intercept", "RegrR2": "regr_r2", "RegrAvgX": "regr_avgx", "RegrAvgY": "regr_avgy",
    "RegrSXX": "regr_sxx", "RegrSXY": "regr_sxy", "RegrSYY": "regr_syy", "Mode": "mode", "ListAgg": "listagg",
    "PercentileCont": "percentile_cont", "PercentileDisc": "percentile_disc", "ApproxTopK": "approx_top_k",
    "BitmapConstructAgg": "bitmap_construct_agg", "BitmapOrAgg": "bitmap_or_agg", "BitmapAndAgg": "bitmap_and_agg",
}  # fmt: skip
_TYPES: Final = {
    "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "string": "STRING", "binary": "BINARY", "date": "DATE", "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ",
}  # fmt: skip
_WHOLE: Final = ("byte", "short", "integer", "long")
_PYTHON: Final = ("PythonUDF", "PythonUDAF")
_LENIENT: Final = ("UnBase64", "Unhex")
"""Functions that do not fail in Spark, unless `to_binary` calls them."""
_TRIED: Final = {
    "TryAdd": "try_add", "TrySubtract": "try_subtract", "TryMultiply": "try_multiply", "TryDivide": "try_divide", "TryMod": "try_mod",
    "TryElementAt": "try_element_at", "TryParseUrl": "try_parse_url", "TryUrlDecode": "try_url_decode", "TryToBinary": "try_to_binary",
}  # fmt: skip
_DECIMAL: Final = re.compile(r"decimal\(\d+,-?\d+\)")
_ZONED: Final = frozenset({"date", "string", "timestamp", "timestamp_ntz"})
_UTC: Final = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "+00:00", "Etc/GMT"})
_HOUR_US: Final = 3_600_000_000


def function_name(name: str, id: int) -> str:
    """What a Python function of a plan is called in SQL. id: of the call, since several lambdas have one name."""
    return f"{re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_').lower() or 'function'}_{id}"


@dataclass(frozen=True)
class SqlWriter:
    """column: the SQL of an attribute. field: of the start (0) or end (1) of a window's column, None of any other structure.
    zone: of the session. common: the SQL of what an expression names several times. windowed: rows are grouped by windows that all have,
    and so end."""

    column: Callable[[Expression], str]
    field: Callable[[Expression, int], str | None]
    zone: str = "UTC"
    common: str = ""
    windowed: bool = False

    def sql(self, tree: Expression) -> str:
        """The expression as Spark SQL. Raises NotPortable."""
        self._check_zone(tree)
        if (collation := collation_of(tree.fields.get("dataType"))) is not None:
            self.refuse(tree, f"it is a string collate {collation}, and texts are compared by their bytes here; take lower(x) in its "
                              "place, or x COLLATE UTF8_BINARY to compare by bytes")  # fmt: skip
        if (written := _WRITERS.get(tree.kind)) is not None:
            return written(self, tree)
        if tree.kind in _SIGNS:
            return f"({self.binary(tree)})"
        if (tree.fields.get("failOnError") is False and tree.kind not in _LENIENT) or tree.kind.startswith("Try"):
            self.refuse(tree, "it gives null where others fail, which Evenflow's functions do not")
        if "replacement" in tree.fields:
            return self.sql(tree.children[0])
        name = _named(tree)
        if name in FUNCTIONS or name in HIGHER:
            return f"{name}({', '.join(map(self.sql, tree.children))})"
        return self.refuse(tree, "Evenflow has no such expression; compute it as a column before withWatermark, where Spark still does it")

    def condition(self, tree: Expression) -> str:
        """The same without parentheses around what AND puts together, so that a join can tell its parts apart."""
        if tree.kind == "With":
            return self._sharing(tree).condition(tree.children[0])
        if "replacement" in tree.fields:
            return self.condition(tree.children[0])
        if tree.kind == "And":
            return " AND ".join(map(self.condition, tree.children))
        return self.binary(tree) if tree.kind in _SIGNS and tree.kind != "Or" else self.sql(tree)

    def binary(self, tree: Expression) -> str:
        left, right = map(self.sql, tree.children)
        return f"{left} {_SIGNS[tree.kind]} {right}"

    def refuse(self, tree: Expression, why: str) -> NoReturn:
        raise NotPortable(f"the expression {str(tree)!r} ({tree.kind}) cannot be ported: {why}", str(tree))

    def _check_zone(self, tree: Expression) -> None:
        """Evenflow computes in UTC, so what depends on the session's zone is another thing there."""
        if self.zone in _UTC:
            return
        if tree.kind == "Literal":
            zoned = tree.fields["dataType"] == "timestamp" and tree.fields["value"] is not None
        elif tree.kind == "Cast":
            target, given = tree.fields["dataType"], type_of(tree.children[0])
            zoned = target in _ZONED and (given is None or "timestamp" in (target, given)) and target != given
        elif tree.kind == "TimestampAddInterval":
            span = _positive(tree.children[1])
            span = span.children[0] if span.kind == "Cast" else span
            value = str(span.fields["value"]) if span.kind == "Literal" else ""
            zoned = span.kind != "Literal" or (value.lstrip("-").isdigit() and abs(int(value)) > 23 * _HOUR_US)
        else:
            zoned = tree.fields.get("timeZoneId") is not None
        if zoned:
            self.refuse(tree, f"it depends on the session's time zone {self.zone}, and Evenflow computes in UTC; compute it before "
                              "withWatermark, or set spark.sql.session.timeZone to UTC")  # fmt: skip

    # ------------------------------------------------ kinds that are written in their own way

    def literal(self, tree: Expression) -> str:
        value, type_ = tree.fields["value"], tree.fields["dataType"]
        if value is None:
            return "NULL" if type_ == "void" else f"CAST(NULL AS {self.type(tree, type_)})"
        if type_ in ("integer", "long", "boolean"):
            return f"({value}{'L' if type_ == 'long' else ''})" if value.startswith("-") else f"{value}{'L' if type_ == 'long' else ''}"
        if type_ in ("date", "timestamp", "timestamp_ntz"):
            return f"{_TYPES[type_]} {quoted_text(value)}"
        if type_ == "string":
            return quoted_text(value)
        if type_ == "binary":
            self.refuse(tree, "a plan does not say which bytes a literal is of; write unhex('...') in its place")
        if isinstance(type_, str) and type_.startswith("interval"):
            return self.interval(tree, value)
        return f"CAST({quoted_text(value)} AS {self.type(tree, type_)})"

    def interval(self, tree: Expression, value: str) -> str:
        try:
            span_us = int(value) if value.lstrip("-").isdigit() else duration_us(value)
        except QueryError as error:
            self.refuse(tree, str(error))
        if "month" in str(tree.fields["dataType"]) or "year" in str(tree.fields["dataType"]):
            self.refuse(tree, "months and years have no fixed length; write days")
        unit = _unit_of(tree.fields["dataType"]).upper()
        if unit in ("DAY", "HOUR", "MINUTE") and span_us % UNITS_US[unit] == 0:
            return f"INTERVAL '{span_us // UNITS_US[unit]}' {unit}"
        return f"INTERVAL '{span_us}' MICROSECOND"

    def type(self, tree: Expression, type_: Any) -> str:
        type_ = "string" if isinstance(type_, str) and type_.lower() == "string collate utf8_binary" else type_
        if isinstance(type_, str) and (type_ in _TYPES or _DECIMAL.fullmatch(type_)):
            return _TYPES.get(type_, type_)
        try:
            return name_of(spark_type(str(tree), type_, "a cast"))
        except TypeMismatch:
            shown = type_ if isinstance(type_, str) else type_.get("type")
            self.refuse(tree, f"Evenflow's expressions do not have the type {shown}")

    def cast(self, tree: Expression) -> str:
        (inner,), target = tree.children, tree.fields["dataType"]
        if target == "interval" and inner.kind == "Literal":
            return self.interval(tree, str(inner.fields["value"]))
        given = type_of(inner)
        if target == given:
            return self.sql(inner)
        if _is_span(target) and _is_span(given):
            return self.sql(inner) if _unit_of(target) in ("second", "interval") else f"CAST({self.sql(inner)} AS {target.upper()})"
        if _is_span(given) and target in _WHOLE:
            return f"CAST(CAST({self.sql(inner)} AS {given.upper()}) AS {self.type(tree, target)})"
        return f"{'TRY_CAST' if tree.fields.get('try') else 'CAST'}({self.sql(inner)} AS {self.type(tree, target)})"

    def case(self, tree: Expression) -> str:
        parts = [self.sql(child) for child in tree.children]
        whens = " ".join(f"WHEN {parts[at]} THEN {parts[at + 1]}" for at in range(0, len(parts) - 1, 2))
        return f"CASE {whens}{f' ELSE {parts[-1]}' if len(parts) % 2 else ''} END"

    def shared(self, tree: Expression) -> str:
        return self._sharing(tree).sql(tree.children[0])

    def _sharing(self, tree: Expression) -> SqlWriter:
        """Knowing what is computed once and named several times, as the value of BETWEEN. The names have no number in JSON."""
        _, *defined = tree.children
        if len(defined) != 1:
            self.refuse(tree, "it names several expressions; write them as columns before")
        return replace(self, common=self.sql(defined[0].children[0]))

    def trimmed(self, tree: Expression) -> str:
        """ltrim and rtrim take the characters first, trim takes them last."""
        name = {"StringTrimLeft": "ltrim", "StringTrimRight": "rtrim"}.get(tree.kind, "btrim")
        given = [self.sql(child) for child in tree.children]
        return f"{name}({', '.join(given if name == 'btrim' else given[::-1])})"

    def like(self, tree: Expression) -> str:
        text, pattern = map(self.sql, tree.children)
        escape = str(tree.fields.get("escapeChar") or "\\")
        return f"({text} LIKE {pattern}{'' if escape == chr(92) else f' ESCAPE {quoted_text(escape)}'})"

    def replaced(self, tree: Expression) -> str:
        """regexp_replace, whose fourth argument is where to begin."""
        *given, start = tree.children
        if start.fields.get("value") != "1":
            self.refuse(tree, "Evenflow's regexp_replace begins at the first character")
        return f"regexp_replace({', '.join(map(self.sql, given))})"

    def aggregate(self, tree: Expression) -> str:
        call, *condition = tree.children
        if call.kind in _PYTHON:
            if condition or tree.fields.get("isDistinct") in (True, "true"):
                self.refuse(tree, "a Python aggregate has no FILTER and no DISTINCT here; filter the rows before")
            return self.python(call)
        name = _AGGREGATES.get(call.kind)
        if name is None:
            self.refuse(tree, f"Evenflow has no such aggregate; it has {', '.join(sorted(_AGGREGATES.values()))}")
        arguments, within = [self.sql(child) for child in call.children], ""
        if name in ("first", "last", "any_value"):
            arguments = [arguments[0], "true"] if call.fields.get("ignoreNulls") in (True, "true") else arguments[:1]
        elif name == "approx_count_distinct" and "relativeSD" in call.fields:
            arguments.append(str(call.fields["relativeSD"]))
        elif name == "percentile" and call.children[2:] and call.children[2].fields.get("value") == "1":
            arguments = arguments[:2]  # How often each value counts: once, where nothing is said.
        elif name in ("percentile_cont", "percentile_disc"):
            down = " DESC" if call.fields.get("reverse") in (True, "true") else ""
            arguments, within = arguments[1:2], f" WITHIN GROUP (ORDER BY {arguments[0]}{down})"
        elif name == "listagg" and call.children[1].fields.get("value") is None:
            arguments = arguments[:1]  # The text between is null where none is given.
        elif name == "approx_top_k":
            arguments = arguments[:2]  # How many values are watched at a time makes no difference where all are.
        elif name == "mode" and "reverseOpt" in call.fields:
            self.refuse(tree, "which of several values that are as frequent comes out is not said here; write mode(x)")
        if call.fields.get("try"):
            name = f"try_{name}"
        if name == "count" and tree.fields.get("isDistinct") in (True, "true"):
            return self.distinct(arguments, None if not condition else self.sql(condition[0]))
        distinct = "DISTINCT " if tree.fields.get("isDistinct") in (True, "true") else ""
        kept = f" FILTER (WHERE {self.sql(condition[0])})" if condition else ""
        nulls = " RESPECT NULLS" if name in WITH_NULLS and call.fields.get("ignoreNulls") in (False, "false") else ""
        return f"{name}({distinct}{', '.join(arguments)}){within}{kept}{nulls}"

    def distinct(self, arguments: Sequence[str], condition: str | None) -> str:
        """How many values there are. Several values are one structure, and count where none is null. Where no window says when all are
        there, they are collected."""
        there = [f"{argument} IS NOT NULL" for argument in arguments] if len(arguments) > 1 else []
        value = arguments[0] if len(arguments) == 1 else f"struct({', '.join(arguments)})"
        if there or condition is not None:
            value = f"CASE WHEN {' AND '.join([*there, *([condition] if condition is not None else [])])} THEN {value} END"
        if self.windowed and len(arguments) == 1:
            return f"count(DISTINCT {value})"
        return f"CAST(size(array_distinct(collect_list({value}))) AS BIGINT)"

    def python(self, tree: Expression) -> str:
        """A call of the user's own function."""
        name = function_name(tree.name, int(tree.fields["resultId"]["id"]))
        return f"{name}({', '.join(map(self.sql, tree.children))})"

    def moved(self, tree: Expression) -> str:
        """A time and an interval that is added, or taken away."""
        time, span = tree.children
        return f"({self.sql(time)} {'-' if span.kind == 'UnaryMinus' else '+'} {self.sql(_positive(span))})"

    def lambda_(self, tree: Expression) -> str:
        """A function. Its variables have their ids behind their names, since functions inside each other may call theirs alike."""
        body, *variables = tree.children
        names = ", ".join(map(self.variable, variables))
        return f"{f'({names})' if len(variables) != 1 else names} -> {self.sql(body)}"

    def variable(self, tree: Expression) -> str:
        return f"`{tree.name}_{tree.id}`"

    def folded(self, tree: Expression) -> str:
        """aggregate, whose last function is left out where it changes nothing."""
        *given, last = tree.children
        same = last.children[0].kind == "NamedLambdaVariable"
        return f"aggregate({', '.join(map(self.sql, given if same else tree.children))})"

    def sorted(self, tree: Expression) -> str:
        array, function = tree.children
        body, left, right = function.children
        if str(body) == _COMPARED.format(left.name, right.name):
            return f"array_sort({self.sql(array)})"
        return f"array_sort({self.sql(array)}, {self.sql(function)})"

    def first_two(self, tree: Expression) -> str:
        """Without what the analyser has added behind."""
        return f"{_named(tree)}({', '.join(map(self.sql, tree.children[:2]))})"

    def item(self, tree: Expression) -> str:
        array, index = map(self.sql, tree.children)
        return f"{array}[{index}]" if tree.fields.get("failOnError") in (True, "true") else f"get({array}, {index})"

    def of_struct(self, tree: Expression) -> str:
        """A field, by the name that Spark's analyser has found, or the one that the type has at that place."""
        (owner,), ordinal = tree.children, int(tree.fields["ordinal"])
        if (bound := self.field(tree, ordinal)) is not None:
            return bound
        name = tree.fields.get("name")
        if not isinstance(name, str):
            type_ = type_of(owner)
            if not isinstance(type_, Mapping):
                self.refuse(tree, "the name of the field is not known here; take it out before withWatermark")
            name = type_["fields"][ordinal]["name"]
        return f"{self.sql(owner)}.{quoted(name)}"

    def as_text(self, tree: Expression) -> str:
        """to_json and to_csv, whose options the plan is looked at for (`Plan.has_options`)."""
        return f"{'to_json' if tree.kind == 'StructsToJson' else 'to_csv'}({self.sql(tree.children[0])})"

    def of_text(self, tree: Expression) -> str:
        """from_json and from_csv, with the schema that Spark has read."""
        name = "from_json" if tree.kind == "JsonToStructs" else "from_csv"
        return f"{name}({self.sql(tree.children[0])}, {quoted_text(self.type(tree, tree.fields['schema']))})"

    def zipped(self, tree: Expression) -> str:
        """arrays_zip, with the names that the fields have in Spark."""
        arrays = tree.children[: len(tree.children) // 2] if "names" not in tree.fields else tree.children
        names = [str(name) for name in tree.children[len(arrays) :]]
        if not names and isinstance(tree.fields.get("names"), list):
            names = [str(read_expression(name)) if isinstance(name, list) else str(name) for name in tree.fields["names"]]
        if len(names) != len(arrays):
            self.refuse(tree, "the names of its fields are not known here; write it before withWatermark")
        given = [part for name, array in zip(names, arrays, strict=True) for part in (quoted_text(name), self.sql(array))]
        return f"_arrays_zip({', '.join(given)})"

    def hashed(self, tree: Expression) -> str:
        """With the seed that Spark's functions have."""
        if tree.fields.get("seed") != 42:
            self.refuse(tree, "hashes have the seed 42 here")
        return f"{'hash' if tree.kind == 'Murmur3Hash' else 'xxhash64'}({', '.join(map(self.sql, tree.children))})"

    def tried(self, tree: Expression) -> str:
        """try_add and the like stand in front of what they are replaced by."""
        inner = tree.children[0]
        while inner.kind == "TryEval":
            inner = inner.children[0]
        if len(inner.children) != 2 and tree.kind in ("TryAdd", "TrySubtract", "TryMultiply", "TryDivide", "TryMod"):
            self.refuse(tree, "it is not replaced by what is known here")
        return f"{_TRIED[tree.kind]}({', '.join(map(self.sql, inner.children))})"

    def parsed(self, tree: Expression) -> str:
        """to_date, to_timestamp and those that give null in place of a failure."""
        name = {"timestamp_ntz": "to_timestamp_ntz", "timestamp": "to_timestamp"}.get(str(tree.fields.get("dataType")), "to_date")
        fails = tree.fields.get("ansiEnabled" if name == "to_date" else "failOnError") in (True, "true")
        if not fails and name == "to_timestamp_ntz":
            self.refuse(tree, "Evenflow has no such function without a zone; take a timestamp with one")
        return f"{'' if fails else 'try_'}{name}({', '.join(map(self.sql, tree.children))})"

    def enough(self, tree: Expression) -> str:
        """Whether so many of some columns are neither null nor NaN: na.drop."""
        there = []
        for child in tree.children:
            type_, value = type_of(child), self.sql(child)
            if type_ is None:
                self.refuse(child, "its type is not known here; write IS NOT NULL in its place")
            there.append(f"({value} IS NOT NULL{f' AND NOT isnan({value})' if type_ in ('float', 'double') else ''})")
        if int(tree.fields["n"]) == len(there):
            return f"({' AND '.join(there)})"
        return f"({' + '.join(f'CAST({each} AS INT)' for each in there)} >= {int(tree.fields['n'])})"

    def of_structs(self, tree: Expression) -> str:
        return f"{self.sql(tree.children[0])}.{quoted(str(tree.fields['field']['name']))}"


def _named(tree: Expression) -> str:
    """What a function is called in SQL. Some make times with a zone or without one, by their type."""
    name = _NAMES.get(tree.kind, tree.kind.lower())
    return f"{name}_ntz" if tree.kind in ("GetTimestamp", "MakeTimestamp") and tree.fields.get("dataType") == "timestamp_ntz" else name


def _positive(span: Expression) -> Expression:
    """What a time is moved by, without the sign: Spark writes `time - span` as the time with minus the span added."""
    return span.children[0] if span.kind == "UnaryMinus" else span


def _is_span(type_: Any) -> bool:
    """Whether it is a type of intervals, of which Spark has one for each pair of units. Those of months are refused where they stand."""
    return isinstance(type_, str) and type_.startswith("interval")


def _unit_of(type_: Any) -> str:
    """The last unit of a type of intervals."""
    return str(type_).rsplit(" ", 1)[-1]


_WRITERS: Final[Mapping[str, Callable[[SqlWriter, Expression], str]]] = {
    "AttributeReference": lambda writer, tree: writer.column(tree),
    "Alias": lambda writer, tree: writer.sql(tree.children[0]),
    "Literal": SqlWriter.literal,
    "Cast": SqlWriter.cast,
    "CaseWhen": SqlWriter.case,
    "If": lambda writer, tree: f"if({', '.join(map(writer.sql, tree.children))})",
    "Not": lambda writer, tree: f"(NOT {writer.sql(tree.children[0])})",
    "IsNull": lambda writer, tree: f"({writer.sql(tree.children[0])} IS NULL)",
    "IsNotNull": lambda writer, tree: f"({writer.sql(tree.children[0])} IS NOT NULL)",
    "TimestampAddInterval": SqlWriter.moved,
    "UnaryMinus": lambda writer, tree: f"(- {writer.sql(tree.children[0])})",
    "In": lambda writer, tree: f"({writer.sql(tree.children[0])} IN ({', '.join(map(writer.sql, tree.children[1:]))}))",
    "With": SqlWriter.shared,
    "CommonExpressionRef": lambda writer, tree: writer.common or writer.refuse(tree, "nothing here says what it is"),
    "Like": SqlWriter.like,
    "RegExpReplace": SqlWriter.replaced,
    "StringTrim": SqlWriter.trimmed,
    "StringTrimLeft": SqlWriter.trimmed,
    "StringTrimRight": SqlWriter.trimmed,
    "AggregateExpression": SqlWriter.aggregate,
    "PythonUDF": SqlWriter.python,
    "GetStructField": SqlWriter.of_struct,
    "LambdaFunction": SqlWriter.lambda_,
    "NamedLambdaVariable": SqlWriter.variable,
    "ArrayAggregate": SqlWriter.folded,
    "ArraySort": SqlWriter.sorted,
    "GetArrayItem": SqlWriter.item,
    "UnixTimestamp": SqlWriter.first_two,
    "ToUnixTimestamp": SqlWriter.first_two,
    "GetTimestamp": SqlWriter.first_two,
    "RegExpInStr": SqlWriter.first_two,
    "GetArrayStructFields": SqlWriter.of_structs,
    "StructsToJson": SqlWriter.as_text,
    "StructsToCsv": SqlWriter.as_text,
    "JsonToStructs": SqlWriter.of_text,
    "CsvToStructs": SqlWriter.of_text,
    "UpdateFields": updated,
    "AtLeastNNonNulls": SqlWriter.enough,
    "ArraysZip": SqlWriter.zipped,
    "Murmur3Hash": SqlWriter.hashed,
    "XxHash64": SqlWriter.hashed,
    **dict.fromkeys(_TRIED, SqlWriter.tried),
    "TryValidateUTF8": lambda writer, tree: f"try_validate_utf8({writer.sql(tree.children[0])})",
    "MakeInterval": lambda writer, tree: f"make_interval({', '.join(map(writer.sql, tree.children))})",
    "ParseToDate": SqlWriter.parsed,
    "ParseToTimestamp": SqlWriter.parsed,
    "NullIfResult": lambda writer, tree: f"if({writer.sql(tree.children[0])}, NULL, {writer.sql(tree.children[1])})",
    "TimestampAdd": lambda writer, tree: f"timestampadd({tree.fields['unit']}, {', '.join(map(writer.sql, tree.children))})",
    "TimestampDiff": lambda writer, tree: f"timestampdiff({tree.fields['unit']}, {', '.join(map(writer.sql, tree.children))})",
}
