"""Writes the generated parts of waggle_collector from the .proto files: `python generate.py PROTO PACKAGE`, as `make generate` does.

The modules of the messages get a package of their own, waggle_collector.v1, beside whatever else is called waggle. The calls of
the six services become the typed methods of the clients.
"""

import pathlib
import re
import sys
import tempfile
import textwrap

import grpc_tools
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

HEADER = "# Generated from the .proto files by generate.py. Do not edit.\n"

CLIENT = '''
class {name}:
    """The unary calls of all services, each with its request and its reply."""

    {define}_call(self, method: str, request: Message, reply: type[Reply], timeout: float) -> Reply:
        raise NotImplementedError
'''

METHOD = '''
    {define}{name}(self, request: v1.{request}, timeout: float = 30) -> v1.{reply}:
        """{doc}"""
        return {wait}self._call("/{path}", request, v1.{reply}, timeout)
'''


def unary(descriptors: descriptor_pb2.FileDescriptorSet):
    """Each unary call with its comment and its full name, by name."""
    for file in descriptors.file:
        comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
        for i, service in enumerate(file.service):
            for j, method in enumerate(service.method):
                if not method.client_streaming:
                    comment = comments[(6, i, 2, j)].strip().split("\n\n")[0]
                    yield method, " ".join(comment.split()), f"{file.package}.{service.name}/{method.name}"


def clients(descriptors: descriptor_pb2.FileDescriptorSet) -> str:
    text = HEADER + '"""The calls of all services as methods."""\n\n'
    text += "from typing import TypeVar\n\nfrom google.protobuf.message import Message\n\nfrom waggle_collector import v1\n\n"
    text += 'Reply = TypeVar("Reply", bound=Message)\n'
    for name, define, wait in ("Methods", "def ", ""), ("AsyncMethods", "async def ", "await "):
        text += "\n" + CLIENT.format(name=name, define=define)
        for method, comment, path in sorted(unary(descriptors), key=lambda call: call[2]):
            doc = "\n        ".join(textwrap.wrap(comment, 110))
            request, reply = (kind.rsplit(".", 1)[1] for kind in (method.input_type, method.output_type))
            text += METHOD.format(define=define, wait=wait, name=method.name, request=request, reply=reply, path=path, doc=doc)
    return text


def main(protos: str, package: str) -> None:
    out = pathlib.Path(package)
    sources = sorted(map(str, pathlib.Path(protos).glob("waggle/v1/*.proto")))
    with tempfile.TemporaryDirectory() as scratch:
        described = pathlib.Path(scratch, "descriptors")
        include = str(pathlib.Path(grpc_tools.__file__).parent / "_proto")
        if protoc.main(["protoc", "-I", protos, "-I", include, f"--python_out={scratch}", f"--pyi_out={scratch}", "--include_source_info",
                        f"--descriptor_set_out={described}", *sources]):
            sys.exit("protoc failed")
        v1 = out / "v1"
        v1.mkdir(parents=True, exist_ok=True)
        modules = []
        for path in sorted(pathlib.Path(scratch, "waggle", "v1").iterdir()):
            text = path.read_text()
            text = re.sub(r"^from waggle\.v1 import", "from waggle_collector.v1 import", text, flags=re.M)
            (v1 / path.name).write_text(text)
            if path.suffix == ".py":
                modules.append(path.stem)
        (v1 / "__init__.py").write_text(
            HEADER + '"""The messages and enums of the protocol, package waggle.v1."""\n\n'
            + "".join(f"from waggle_collector.v1.{module} import *\n" for module in modules))
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes())
    (out / "_methods.py").write_text(clients(descriptors))


if __name__ == "__main__":
    main(*sys.argv[1:])
