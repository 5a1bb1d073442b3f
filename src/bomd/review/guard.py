"""What every request must pass before any page sees it, and how what it says is checked before anything is made of it.

The right host, the token, a small size, the same origin; then whole numbers, names and JSON objects.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bomd.review.connections import PATIENCE

LONGEST_ADDRESS = 2048  # bytes of path and query
LARGEST_BODY = 16 * 1024  # bytes
LONGEST_NAME, LONGEST_REASON = 60, 300
JOINERS = "\u200c\u200d"  # of letters, which some scripts need and nobody sees
METHODS = ("GET", "HEAD", "POST")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
# Shown once. A link in this page, unlike a redirect, is followed with a strict cookie wherever the address came from.
ENTER = (
    '<!doctype html><meta http-equiv="refresh" content="0;url={room}{image}"><title>bomd review</title>'
    '<link rel="icon" href="{room}static/icon.svg"><a href="{room}{image}">Open</a>'
)
COOKIE = "bomd-review"


class Guard:
    """Wraps the pages; refuses with one line of text.

    All pages are below a room, a path that nobody can guess, and the cookie is for that path only. Browsers send the
    cookies of a host to all its ports, so that without it every other server on this machine that the reviewer visits
    would get the cookie. Nor is the cookie the token, or good for another port.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.room, self.ticket = room_and_ticket(token, port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._answer(scope)
        if answer is None:
            scope = {**scope, "path": "/" + scope["path"].removeprefix(self.room)}
        await (answer or self.app)(scope, receive, send_with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """A refusal, the answer to the first address, or None if the pages may answer."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return _refuse(421, "This server answers on 127.0.0.1 and localhost only.")
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            return _refuse(414, "The address is too long.")
        if scope["method"] not in METHODS:
            return _refuse(405, "Only GET and POST are answered.")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:12]) > LARGEST_BODY:
            return _refuse(413, f"The request is too large: at most {LARGEST_BODY} bytes.")
        if scope["path"] == "/" and scope["method"] == "GET" and b"token=" in scope["query_string"]:
            given = parse_qs(scope["query_string"].decode("latin-1"))
            if not _same(given.get("token", [""])[0], self.token):
                return _refuse(403, "Wrong token. Open the address that `bomd review` printed.")
            image = quote(given["image"][0], safe="") if "image" in given else ""  # by which no markup can get in
            welcome = HTMLResponse(ENTER.format(room=self.room, image=f"#image={image}" if image else ""))
            welcome.set_cookie(COOKIE, self.ticket, path=self.room, httponly=True, samesite="strict")
            return welcome
        if not scope["path"].startswith(self.room) or not _same(_cookie(headers, COOKIE), self.ticket):
            return _refuse(403, "No token. Open the address that `bomd review` printed.")
        return self._post(headers) if scope["method"] == "POST" else None

    def _post(self, headers: Headers) -> Response | None:
        """Only a page of this server may change something: other sites cannot forge these headers."""
        own = headers.get("origin", "").lower() in [f"http://{host}" for host in self.hosts]
        if not own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _refuse(403, "Decisions are taken from this server's own page only.")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refuse(415, "A decision is sent as application/json.")
        return None


def _same(given: str, right: str) -> bool:
    """Compared in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), right.encode())


def room_and_ticket(token: str, port: int) -> tuple[str, str]:
    """The path below which all pages are and the content of the cookie; neither gives the token away."""
    room, ticket = (hmac.new(token.encode(), f"{what} {port}".encode(), "sha256") for what in ("room", "ticket"))
    return f"/{room.hexdigest()[:32]}/", ticket.hexdigest()[:32]


def _cookie(headers: Headers, name: str) -> str:
    """The value of our cookie, whatever other programs on this machine have put beside it."""
    for line in headers.getlist("cookie"):
        for pair in line.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                return value
    return ""


def _refuse(status: int, line: str) -> Response:
    return PlainTextResponse(line + "\n", status)


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent, of limited size whatever its header says."""
    content = b""
    try:
        async with asyncio.timeout(PATIENCE):
            async for piece in request.stream():
                content += piece
                if len(content) > LARGEST_BODY:
                    raise HTTPException(413, f"The request is too large: at most {LARGEST_BODY} bytes.")
    except TimeoutError as error:
        raise HTTPException(408, "The request came too slowly.") from error
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "The request is not JSON.") from error
    if not isinstance(body, dict):
        raise HTTPException(400, "The request is not a JSON object.")
    return body


def read_name(given: Any) -> str:
    """A reviewer's name: short and printable."""
    name = given.strip() if isinstance(given, str) else ""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise HTTPException(400, f"'reviewer' must be a name of 1 to {LONGEST_NAME} printable characters.")
    return name


def read_reason(given: Any) -> str:
    """Why somebody decided so, as one line: without breaks and unseen characters, which pasted text brings along."""
    text = given if isinstance(given, str) else ""
    reason = " ".join("".join(one for one in text if one.isprintable() or one.isspace() or one in JOINERS).split())
    if len(reason) > LONGEST_REASON or not isinstance(given, str | None):
        raise HTTPException(400, f"'reason' must be a text of at most {LONGEST_REASON} characters.")
    return reason


def whole(text: str, what: str, largest: int, missing: int = 400) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > largest:
        raise HTTPException(missing, f"'{what}' must be a whole number of at most {largest}.")
    return int(text)


def one_of(request: Request, name: str, known: Sequence[str]) -> str:
    """What an address says of something that has a few values; by default the first."""
    value = request.query_params.get(name) or known[0]
    if value not in known:
        raise HTTPException(400, f"'{name}' is one of {', '.join(known)}.")
    return value


def as_json(value: Any) -> Response:
    return Response(json.dumps(value, allow_nan=False), media_type="application/json")


def as_png(content: bytes) -> Response:
    return Response(content, media_type="image/png")
