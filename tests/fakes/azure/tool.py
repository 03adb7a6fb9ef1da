"""A stand-in for ArtifactTool. It is copied out as a program of its own: standard library only.

Arguments, token variable, log lines, result and exit codes 17, 19 and 20 are facts; codes 1 and
18 and the transfer of the bytes are guesses (see the package's docstring).
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

OK, FAILED, EXISTS, NO_PACKAGE, NO_FEED, BAD_VERSION = 0, 1, 17, 18, 19, 20

Options = dict[str, str]
Behaviour = dict[str, Any]


class Refused(Exception):
    """The run ends with a code and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def log(
    message: str,
    level: str = "",
    name: str = "",
    source: str = "ArtifactTool.Commands",
    **values: int,
) -> None:
    line: dict[str, Any] = {"@t": datetime.now(UTC).isoformat(), "@m": message, "@i": "abcd"}
    if level:
        line["@l"] = level
    line.update(values, SourceContext=source)
    if name:
        line["EventId"] = {"Id": 7, "Name": name}
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


def read_options(argv: list[str]) -> Options:
    options = {}
    names = iter(argv)
    for name in names:
        if not name.startswith("--"):
            raise SystemExit(f"unexpected {name}")
        options[name[2:]] = next(names)
    return options


class Client:
    """Talks to the stand-in of the service."""

    def __init__(self, service: str, token: str) -> None:
        parts = urlsplit(service)
        self.organization = parts.path.strip("/")
        self.host = parts.netloc
        self.auth = "Basic " + base64.b64encode(f":{token}".encode()).decode()
        self.connection = http.client.HTTPConnection(self.host, timeout=100)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        headers = {"Authorization": self.auth, "X-TFS-FedAuthRedirect": "Suppress"}
        self.connection.request(method, path, body, headers)
        reply = self.connection.getresponse()
        return reply.status, reply.read()

    def good(self, method: str, path: str, body: bytes | None = None) -> bytes:
        status, content = self.ask(method, path, body)
        if status in (200, 204):
            return content
        try:
            problem = json.loads(content)
            message, key = problem["message"], problem["typeKey"]
        except (ValueError, KeyError, TypeError):
            message, key = f"Operation returned a {status} status code.", ""
        if status in (203, 302, 401):
            message = f"VS30063: You are not authorized to access {self.host}. {message}"
        code = FAILED
        if key == "FeedIdNotFoundException":
            code = NO_FEED
        elif status == 409 and "deleted" not in message:
            code = EXISTS
        elif key == "PackageNotFoundException":
            code, message = NO_PACKAGE, f"Can't find the package. {message}"
        raise Refused(code, message)


def blob_id(content: bytes) -> str:
    return hashlib.sha512(content).hexdigest()[:64].upper() + "01"


def published_files(folder: Path) -> Iterator[tuple[str, Path]]:
    listing = folder / ".artifactignore"
    ignored = listing.read_text().split() if listing.exists() else []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        hidden = ".git" in path.parts or any(fnmatch.fnmatch(name, rule) for rule in ignored)
        if path.is_file() and not hidden:
            yield name, path


def package_path(client: Client, options: Options) -> str:
    project = "/" + quote(options["project"]) if "project" in options else ""
    return (
        f"/pkgs/{client.organization}{project}/_packaging/{quote(options['feed'])}"
        f"/upack/packages/{options['package-name']}/versions/{options['package-version']}"
    )


def publish(client: Client, options: Options, behaviour: Behaviour) -> str:
    if options["package-version"].startswith("v"):
        raise Refused(BAD_VERSION, "The version provided is invalid")
    path = package_path(client, options)
    blobs = f"/vsblob/{client.organization}/blobs/"
    status, content = client.ask("GET", path + "?intent=FetchMetadataOnly")
    if status == 200:
        raise Refused(EXISTS, "The package already exists in the feed")
    if status != 404 or b"PackageNotFoundException" not in content:
        client.good("GET", path + "?intent=FetchMetadataOnly")
    dropped = behaviour.get("drop")
    files = [(n, p) for n, p in published_files(Path(options["path"])) if n != dropped]
    total = sum(source.stat().st_size for _, source in files)
    done, items = 0, []
    for number, (name, source) in enumerate(files, 1):
        content = source.read_bytes()
        client.good("PUT", blobs + blob_id(content), content)
        items.append({"path": f"/{name}", "blob": {"id": blob_id(content), "size": len(content)}})
        done += len(content)
        log("Processing", name="ProcessingFiles", ProcessedFiles=number, TotalFiles=len(files))
        log("Uploading", name="Uploading", UploadedBytes=done, TotalBytes=total)
    value = {"manifestFormat": "1.1.0", "items": items, "manifestReferences": []}
    separators = None if "indent" in behaviour else (",", ":")
    written = json.dumps(
        value, indent=behaviour.get("indent"), separators=separators, ensure_ascii=False
    )
    manifest = written.encode()
    client.good("PUT", blobs + blob_id(manifest), manifest)
    misbehave(behaviour, "before")
    body = {
        "manifestId": blob_id(manifest),
        "superRootId": blob_id(manifest)[:-2] + "02",
        "proofNodes": [],
        "description": options.get("description", ""),
    }
    client.good("PUT", path, json.dumps(body).encode())
    misbehave(behaviour, "after")
    return blob_id(manifest)


def download(client: Client, options: Options, behaviour: Behaviour) -> str:
    path, blobs = package_path(client, options), f"/vsblob/{client.organization}/blobs/"
    meta = json.loads(client.good("GET", path))
    manifest = json.loads(client.good("GET", blobs + meta["manifestId"]))
    wanted = options["filter"].split(";") if "filter" in options else ["*"]
    misbehave(behaviour, "before")
    done = 0
    for item in manifest["items"]:
        name = item["path"].lstrip("/")
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted):
            continue
        if name == behaviour.get("drop"):
            continue
        target = Path(options["path"], *name.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        content = client.good("GET", blobs + item["blob"]["id"])
        target.write_bytes(content[:-1] if behaviour.get("corrupt") == name else content)
        done += len(content)
        log("Downloading", name="Downloading", DownloadedBytes=done, TotalBytes=0)
    return str(meta["manifestId"])


def misbehave(behaviour: Behaviour, moment: str) -> None:
    if behaviour.get("moment", "before") != moment:
        return
    for number in range(behaviour.get("flood", 0)):
        sys.stdout.write("noise on stdout " * 60 + "\n")
        log(f"noise {number} " * 30, level="Warning")
    if "child" in behaviour:
        # A helper that outlives its parent and keeps the pipes open.
        child = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(600)"])
        Path(behaviour["child"]).write_text(str(child.pid))
    if "hang" in behaviour:
        log("Uploading", name="Uploading", UploadedBytes=1, TotalBytes=0)
        while True:
            log("Try 1/5, retryable exception caught. Retrying in 00:00:01", level="Warning")
            time.sleep(0.05)
    if "error" in behaviour:
        raise Refused(behaviour.get("code", FAILED), behaviour["error"])
    if "crash" in behaviour:
        sys.stderr.write(behaviour["crash"] + "\n")
        sys.stderr.flush()
        os.abort()


def run(argv: list[str]) -> int:
    verb, options = argv[1], read_options(argv[2:])
    token = os.environ.get(options["patvar"], "")
    client = Client(options["service"], token)
    behaviour: Behaviour = json.loads(client.good("GET", "/behaviour"))
    log("ArtifactTool starts", source="ArtifactTool.Program")
    if "record" in behaviour:
        record = {"argv": argv, "env": dict(os.environ)}
        Path(behaviour["record"]).write_text(json.dumps(record))
    if behaviour.get("show"):
        raise Refused(FAILED, f"the token is {token}, the header {client.auth}")
    client.good("GET", f"/{client.organization}/_apis/connectionData")
    work = publish if verb == "publish" else download
    manifest = work(client, options, behaviour)
    result = {
        "Description": options.get("description"),
        "ManifestId": manifest,
        "SuperRootId": manifest[:-2] + "02",
        "Version": options["package-version"],
    }
    if not behaviour.get("silent"):
        sys.stdout.write(json.dumps(result) + "\n")
    return OK


def main(argv: list[str]) -> int:
    if argv == ["--help"]:
        sys.stderr.write(os.environ.get("STANDIN_START", "usage\n"))
        return int(os.environ.get("STANDIN_CODE", "1"))
    try:
        return run(argv)
    except Refused as refused:
        log(str(refused), level="Error", source="ArtifactTool.Program")
        log("Task was requested to be canceled.", level="Warning")
        return refused.code
    except (OSError, http.client.HTTPException) as error:
        log(f"{type(error).__name__}: {error}", level="Error", source="ArtifactTool.Program")
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
