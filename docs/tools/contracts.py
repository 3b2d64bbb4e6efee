"""The gRPC contracts as pages: services, messages and enums with the comments of their .proto files."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

from docs.tools.tables import code, table

PROTO = Path(__file__).parents[2] / "proto"
MESSAGE, ENUM, SERVICE = 4, 5, 6
"""Numbers of FileDescriptorProto's fields, of which the paths of comments are made; below a message 2 is its fields."""
COMMON = re.compile(r"^ +- ([a-z_, ]+): (.+?)(?=^ +- |^\s*$|\Z)", re.MULTILINE | re.DOTALL)
"""In a service's comment: `- name, name: what a field of this name means wherever its message does not say more`."""

Path_ = tuple[int, ...]


@cache
def files() -> Mapping[str, FileDescriptorProto]:
    """Every contract by its file's name, with comments."""
    sources = [str(path.relative_to(PROTO)) for path in sorted(PROTO.rglob("*.proto"))]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set.pb"
        well_known = resources.files("grpc_tools") / "_proto"
        arguments = ["protoc", f"-I{PROTO}", f"-I{well_known}", f"--descriptor_set_out={out}", "--include_source_info"]
        if protoc.main([*arguments, *sources]) != 0:
            raise RuntimeError(f"protoc does not take {', '.join(sources)}; its complaint is above")
        read = FileDescriptorSet.FromString(out.read_bytes())
    return {Path(file.name).stem: file for file in read.file}


def comments(file: FileDescriptorProto) -> dict[Path_, str]:
    """What is written above each thing, or behind it in its line."""
    found = {}
    for place in file.source_code_info.location:
        text = place.leading_comments or place.trailing_comments
        if text:
            found[tuple(place.path)] = re.sub(r"^ ?buf:lint.*\n?", "", text, flags=re.MULTILINE)
    return found


@cache
def common_words(package: str) -> Mapping[str, str]:
    """What fields of the same name mean everywhere in a package, as its services' comments list it."""
    words: dict[str, str] = {}
    for file in files().values():
        notes = comments(file)
        for at in range(len(file.service) if file.package == package else 0):
            for names, meaning in COMMON.findall(notes.get((SERVICE, at), "")):
                said = " ".join(meaning.split())
                words |= dict.fromkeys((name.strip() for name in names.split(",")), said[0].upper() + said[1:])
    return words


@cache
def types() -> Mapping[str, tuple[str, str]]:
    """Every message and enum by its full name: the page that tells of it, and its comment."""
    found = {}
    for stem, file in files().items():
        notes = comments(file)
        messages = [(MESSAGE, at, message.name) for at, message in enumerate(file.message_type)]
        enums = [(ENUM, at, enum.name) for at, enum in enumerate(file.enum_type)]
        for kind, at, name in (*messages, *enums):
            found[f".{file.package}.{name}"] = (stem, notes.get((kind, at), ""))
    return found


def meaning(package: str, field: FieldDescriptorProto, said: str) -> str:
    """What a field means: its own comment, else the common word for it, else what its type is."""
    return said or common_words(package).get(field.name, "") or types().get(field.type_name, ("", ""))[1]


def page(name: str) -> str:
    """All that one file defines."""
    file = files()[name]
    notes = comments(file)
    parts = [f"Package `{file.package}`, file `proto/{file.name}`."]
    for at, service in enumerate(file.service):
        parts += service_parts(service, notes, (SERVICE, at))
    for at, message in enumerate(file.message_type):
        parts += message_parts(file.package, message, notes, (MESSAGE, at))
    for at, enum in enumerate(file.enum_type):
        parts += enum_parts(enum, notes, (ENUM, at))
    return "\n\n".join(part for part in parts if part) + "\n"


def service_parts(service: ServiceDescriptorProto, notes: Mapping[Path_, str], path: Path_) -> Iterator[str]:
    yield f"## Service {service.name}"
    yield prose(notes.get(path, ""))
    rows = []
    for at, method in enumerate(service.method):
        asked = ("stream of " if method.client_streaming else "") + linked(method.input_type)
        answered = ("stream of " if method.server_streaming else "") + linked(method.output_type)
        rows.append([code(method.name), asked, answered, prose(notes.get((*path, 2, at), ""))])
    yield table(["call", "takes", "answers", ""], rows)


def message_parts(package: str, message: DescriptorProto, notes: Mapping[Path_, str], path: Path_) -> Iterator[str]:
    yield f"## {message.name}"
    yield prose(notes.get(path, ""))
    rows = []
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    for at, field in enumerate(message.field):
        said = meaning(package, field, notes.get((*path, 2, at), ""))
        chosen = "" if field.proto3_optional or not field.HasField("oneof_index") else "one of these. "
        rows.append([code(field.name), str(field.number), type_of(field, maps), chosen + prose(said)])
    yield table(["field", "number", "type", ""], rows) if rows else "No fields."


def enum_parts(enum: EnumDescriptorProto, notes: Mapping[Path_, str], path: Path_) -> Iterator[str]:
    yield f"## {enum.name}"
    yield prose(notes.get(path, ""))
    rows = [
        [code(value.name), str(value.number), prose(notes.get((*path, 2, at), ""))]
        for at, value in enumerate(enum.value)
    ]
    yield table(["name", "number", ""], rows)


def type_of(field: FieldDescriptorProto, maps: Mapping[str, DescriptorProto]) -> str:
    """As the .proto file says it, with a link to messages of ours."""
    entry = maps.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        key, value = entry.field
        return f"map of {type_of(key, {})} to {type_of(value, {})}"
    name = linked(field.type_name) if field.type_name else FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {name}"
    return f"optional {name}" if field.proto3_optional else name


def linked(type_name: str) -> str:
    """A link to where a message or enum is told of."""
    name = type_name.rpartition(".")[2]
    return f"[{name}]({types()[type_name][0]}.md#{name.lower()})"


def prose(text: str) -> str:
    """A comment's lines, joined in paragraphs; lists stay lists."""
    paragraphs = [re.sub(r"\n\s*(?!\s*- )", " ", part.strip()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    told = "\n\n".join(re.sub(r"(?m)^\s*- ([a-z_, ]+):", listed, part) for part in paragraphs)
    # A list begins after an empty line.
    return re.sub(r"\n- ", r"\n\n- ", told, count=1).replace("<", "&lt;")


def listed(match: re.Match[str]) -> str:
    """Field names of a list as code."""
    return "- " + ", ".join(code(name.strip()) for name in match[1].split(",")) + ":"


def unsaid() -> list[str]:
    """Fields that neither their message nor the list of common words explains, and calls without a comment."""
    missing = []
    for file in files().values():
        notes = comments(file)
        for at, message in enumerate(file.message_type):
            for place, field in enumerate(message.field):
                if not meaning(file.package, field, notes.get((MESSAGE, at, 2, place), "")):
                    missing.append(f"{message.name}.{field.name}")
        for at, service in enumerate(file.service):
            for place, method in enumerate(service.method):
                if (SERVICE, at, 2, place) not in notes:
                    missing.append(f"{service.name}.{method.name}")
    return missing


def field_comments(stem: str, message_name: str) -> dict[str, str]:
    """What a message's fields mean, by their names; nothing for a message that there is not."""
    file = files()[stem]
    notes = comments(file)
    return {
        field.name: prose(meaning(file.package, field, notes.get((MESSAGE, at, 2, place), "")))
        for at, message in enumerate(file.message_type)
        if message.name == message_name
        for place, field in enumerate(message.field)
    }
