"""A synchronous send through Carillon, then the same message to its provider without Carillon, and so on in turn."""

import json
import sys
import time
from urllib.parse import urlencode

import uvloop

from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest

WARM_UP = 20
SEND = {
    "templateKey": "login_otp",
    "channel": "sms",
    "recipient": "+14155550100",
    "data": {"code": "123456"},
    "synchronous": True,
}
FORM = {"To": SEND["recipient"], "From": "+15005550006", "Body": "123456 is your Listo code."}
ACCOUNT = "/2010-04-01/Accounts/AC00000000000000000000000000000001"


async def main(carillon: str, provider: str, count: int) -> None:
    client = HttpClient()
    send = HttpRequest(
        url=f"{carillon}/api/v1/notifications/send",
        timeout_seconds=10,
        body=json.dumps(SEND).encode(),
        headers={"Content-Type": "application/json"},
    )
    bare = HttpRequest(
        url=f"{provider}{ACCOUNT}/Messages.json",
        timeout_seconds=10,
        body=urlencode(FORM).encode(),
        headers={"Content-Type": "application/x-www-form-urlencoded", "Authorization": "Basic YmVuY2g6YmVuY2g="},
    )
    ours_ms: list[float] = []
    bare_ms: list[float] = []
    for _ in range(count + WARM_UP):
        ours_ms.append(await _timed(client, send))
        bare_ms.append(await _timed(client, bare))
    print(json.dumps({"ours_ms": ours_ms[WARM_UP:], "bare_ms": bare_ms[WARM_UP:]}))
    await client.aclose()


async def _timed(client: HttpClient, request: HttpRequest) -> float:
    began = time.perf_counter()
    answer = await client.post(request)
    took = (time.perf_counter() - began) * 1000
    if not isinstance(answer, HttpAnswer) or not answer.ok:
        raise RuntimeError(str(answer))
    return took


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
