"""Emails with everything that one may carry, as tests send them and look for them."""

import base64
from typing import Any

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 8
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAAMBAQDJ/pLvAAAAAElFTkSuQmCC")
CC, BCC = "boss@example.org", "archive@example.org"


def file(name: str = "invoice.pdf", content: bytes = PDF, kind: str = "application/pdf", **fields: Any) -> Any:
    return {"filename": name, "contentType": kind, "content": base64.b64encode(content).decode(), **fields}


def everything() -> dict[str, Any]:
    return {
        "attachments": [file(), file("logo.png", PNG, "image/png", inline=True)],
        "cc": [CC],
        "bcc": [BCC],
        "replyTo": "help@example.org",
        "headers": {"X-Order": "4711"},
    }
