"""Drives `fanin lsp` with the client of pygls. Arguments: the program, the repository, a folder to write to."""

import asyncio
import pathlib
import subprocess
import sys

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

PROGRAM, ROOT, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
TIMEOUT = 60

TOML = """[upstreams.catalog]
url = "http://127.0.0.1:1"
[upstreams.catalog.operations.product]
path = "/products/{id}"
[[routes]]
path = "/p/{id}"
flow = "flows/page.star:page"
"""
PAGE = """load("@upstreams", "catalog")
load("flows/shared.star", "shown")

def page(req):
    product = catalog.product(id = req.params["id"])
    return shown(product)
"""
SHARED = '''def shown(product):
    """What clients see."""
    return {"name": product["name"]}
'''


class Client(LanguageClient):
    def __init__(self):
        super().__init__("test", "1")
        self.found = {}
        self.arrived = asyncio.Event()
        self.versions = {}

        @self.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params):
            self.found[params.uri] = (params.version, params.diagnostics)
            self.arrived.set()

    async def diagnostics(self, uri):
        """Those of the version that was sent last."""
        while uri not in self.found or self.found[uri][0] not in (None, self.versions.get(uri)):
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), TIMEOUT)
        return list(self.found[uri][1])

    def open(self, uri, text, language="starlark"):
        self.versions[uri] = 1
        item = lsp.TextDocumentItem(uri=uri, language_id=language, version=1, text=text)
        self.text_document_did_open(lsp.DidOpenTextDocumentParams(text_document=item))

    def change(self, uri, text):
        self.versions[uri] += 1
        document = lsp.VersionedTextDocumentIdentifier(uri=uri, version=self.versions[uri])
        change = lsp.TextDocumentContentChangeWholeDocument(text=text)
        params = lsp.DidChangeTextDocumentParams(text_document=document, content_changes=[change])
        self.text_document_did_change(params)


def at(uri, text, needle, more=0):
    """The place of a text in a document."""
    before = text[: text.index(needle) + more]
    position = lsp.Position(line=before.count("\n"), character=len(before) - before.rfind("\n") - 1)
    return {"text_document": lsp.TextDocumentIdentifier(uri=uri), "position": position}


def written(name, text):
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.as_uri()


async def features(client):
    toml, page, shared = written("fanin.toml", TOML), written("flows/page.star", PAGE), written("flows/shared.star", SHARED)
    client.open(page, PAGE)
    assert await client.diagnostics(page) == [], client.found

    # As typed: the error is where it is, also behind characters of two units of UTF-16.
    wrong = PAGE.replace("catalog.product(id", '"𝄞𝄞"; x = catalog.prodct(id')
    client.change(page, wrong)
    [one] = [one for one in await client.diagnostics(page) if one.severity == lsp.DiagnosticSeverity.Error]
    assert one.message.startswith("catalog has no method prodct"), one
    assert one.range.start == at(page, wrong.replace("𝄞", ".."), "prodct")["position"], one
    client.change(page, PAGE)
    assert await client.diagnostics(page) == []

    # What is not saved counts for the files that load it.
    client.open(shared, SHARED.replace("def shown", "def other"))
    await client.diagnostics(shared)
    assert any("shown" in one.message for one in await client.diagnostics(page)), client.found
    client.change(shared, SHARED)
    await client.diagnostics(shared)
    assert await client.diagnostics(page) == []

    async def hover(needle, more=0):
        found = await client.text_document_hover_async(lsp.HoverParams(**at(page, PAGE, needle, more)))
        return found.contents.value

    method = await hover("product(id")
    assert "catalog.product(id)" in method and "GET /products/{id}" in method and "round 1" in method, method
    assert "shown(product)" in await hover("shown(") and "What clients see" in await hover("shown(")
    assert "at most 1 rounds, 1 calls" in await hover("page(req)")

    async def labels(text, needle, more=0):
        client.change(page, text)
        params = lsp.CompletionParams(**at(page, text, needle, more))
        found = await client.text_document_completion_async(params)
        return {one.label for one in found}

    typing = PAGE.replace("catalog.product(id = req.params[\"id\"])", "catalog.")
    assert {"product", "get", "post"} <= await labels(typing, "catalog.\n", len("catalog."))
    assert {"id", "optional", "timeout"} <= await labels(PAGE, "id = req")
    assert {"catalog"} == await labels(PAGE, 'catalog"', 0)
    assert {"shown"} == await labels(PAGE, 'shown")', 0)
    assert {"@upstreams", "flows/shared.star"} <= await labels(PAGE, "@upstreams")
    assert {"req", "product", "shown", "len", "abort"} <= await labels(PAGE, "shown(product)")

    async def goes(needle, more=0):
        found = await client.text_document_definition_async(lsp.DefinitionParams(**at(page, PAGE, needle, more)))
        return found.uri, found.range.start.line

    assert await goes("shown(") == (shared, 0)
    assert await goes("product(id") == (toml, 2)
    assert await goes("catalog.product") == (toml, 0)
    assert await goes("product)", 0) == (page, 4)

    async def renamed(needle, new):
        found = await client.text_document_rename_async(lsp.RenameParams(**at(page, PAGE, needle), new_name=new))
        texts = {}
        for uri, edits in found.changes.items():
            lines = {page: PAGE, shared: SHARED}[uri].split("\n")
            for edit in sorted(edits, key=lambda edit: (edit.range.start.line, edit.range.start.character), reverse=True):
                line, start, end = edit.range.start.line, edit.range.start.character, edit.range.end.character
                lines[line] = lines[line][:start] + edit.new_text + lines[line][end:]
            texts[uri] = "\n".join(lines)
        return texts

    assert await renamed("shown(", "view") == {page: PAGE.replace("shown", "view"), shared: SHARED.replace("shown", "view")}
    # The name of a parameter's keyword and the operation stay.
    local = PAGE.replace("    product =", "    item =").replace("shown(product)", "shown(item)")
    assert await renamed("product = ", "item") == {page: local}
    for new in ["page", "1x", "if"]:
        try:
            await renamed("shown(", new)
            raise AssertionError(new)
        except Exception as error:
            assert not isinstance(error, AssertionError), error

    client.change(page, PAGE.replace("return shown(product)", "return  shown( product )"))
    params = lsp.DocumentFormattingParams(
        text_document=lsp.TextDocumentIdentifier(uri=page), options=lsp.FormattingOptions(tab_size=4, insert_spaces=True)
    )
    [edit] = await client.text_document_formatting_async(params)
    assert edit.new_text == PAGE, edit

    # The configuration, too.
    client.open(toml, TOML + "budget = { calls = 0 }\n", "toml")
    [one] = await client.diagnostics(toml)
    assert "its budget is 0" in one.message and one.range.start == lsp.Position(line=7, character=19), one
    client.change(toml, TOML.replace("[[routes]]", "[[rotes]]"))
    assert any("rotes" in one.message for one in await client.diagnostics(toml)), client.found


GRPC_TOML = """[upstreams.users]
grpc = "http://127.0.0.1:1"
proto = "users.proto"
[[routes]]
path = "/u/{id}"
flow = "page.star:page"
"""
PROTO = """syntax = "proto3";
package shop.v1;
service Users { rpc Find(Query) returns (User); }
message Query { string user_id = 1; repeated Part parts = 2; Kind kind = 3; }
message Part { int32 depth = 1; Name name = 2; }
message Name { string first = 1; }
message User { string label = 1; }
enum Kind { KIND_ANY = 0; KIND_NEW = 1; }
"""
GRPC_PAGE = """load("@upstreams", "users")

def page(req):
    return users.Find({"user_id": req.params["id"], "parts": [{"depth": 1, "name": {"first": "a"}}]})
"""


async def messages(client):
    """Fields of the messages of a real .proto."""
    written("grpc/users.proto", PROTO), written("grpc/fanin.toml", GRPC_TOML)
    page = written("grpc/page.star", GRPC_PAGE)
    client.open(page, GRPC_PAGE)
    assert await client.diagnostics(page) == [], client.found
    found = await client.text_document_hover_async(lsp.HoverParams(**at(page, GRPC_PAGE, "Find(")))
    shown = found.contents.value
    assert "users.Find(shop.v1.Query)" in shown and "shop.v1.Users/Find" in shown and "round 1" in shown, shown

    async def fields(text, needle, more):
        client.change(page, text)
        found = await client.text_document_completion_async(lsp.CompletionParams(**at(page, text, needle, more)))
        return {one.label: one.detail for one in found}

    methods = await fields(GRPC_PAGE.replace("Find({", "Fi", 1), "users.Fi", len("users."))
    assert "Find" in methods, methods
    of_query = await fields(GRPC_PAGE, '"user_id"', 1)
    assert set(of_query) == {"user_id", "parts", "kind"} and "string" in of_query["user_id"], of_query
    of_part = await fields(GRPC_PAGE, '"depth"', 1)
    assert set(of_part) == {"depth", "name"} and "int32" in of_part["depth"], of_part
    assert set(await fields(GRPC_PAGE, '"first"', 1)) == {"first"}
    wrong = GRPC_PAGE.replace('"depth"', '"depht"')
    client.change(page, wrong)
    [one] = [one for one in await client.diagnostics(page) if one.severity == lsp.DiagnosticSeverity.Error]
    assert "depht" in one.message, one


def flows():
    """The flows of all folders of the repository that `fanin check` accepts."""
    for toml in sorted(ROOT.glob("*/**/fanin.toml")):
        if {"target", ".venv"} & set(toml.relative_to(ROOT).parts):
            continue
        if subprocess.run([PROGRAM, "check", toml.parent], capture_output=True).returncode == 0:
            yield from sorted(toml.parent.glob("**/*.star"))


async def repository(client):
    """No flow of the repository has an error, and hovering and completing at any place answers."""
    count = 0
    for path in flows():
        text = path.read_text()
        client.open(path.as_uri(), text)
        found = [one for one in await client.diagnostics(path.as_uri()) if one.severity == lsp.DiagnosticSeverity.Error]
        assert found == [], (path, found)
        for offset in range(0, len(text), max(1, len(text) // 40)):
            place = at(path.as_uri(), text, text[offset:])
            await client.text_document_hover_async(lsp.HoverParams(**place))
            await client.text_document_completion_async(lsp.CompletionParams(**place))
            await client.text_document_definition_async(lsp.DefinitionParams(**place))
        count += 1
    assert count >= 12, count


async def main():
    client = Client()
    await client.start_io(PROGRAM, "lsp")
    params = lsp.InitializeParams(capabilities=lsp.ClientCapabilities(), root_uri=FOLDER.as_uri())
    result = await client.initialize_async(params)
    assert result.server_info.name == "fanin"
    client.initialized(lsp.InitializedParams())
    await features(client)
    await messages(client)
    await repository(client)
    await client.shutdown_async(None)
    client.exit(None)
    await asyncio.wait_for(client.stop(), TIMEOUT)
    print("all is right")


asyncio.run(main())
