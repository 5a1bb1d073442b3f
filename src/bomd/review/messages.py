"""What pages send, checked before anything is made of it, and the forms of an answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bomd.review.connections import PATIENCE
from bomd.review.guard import LARGEST_BODY

LONGEST_NAME = 60


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
