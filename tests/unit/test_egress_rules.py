"""The egress rules on a corpus of hostile URLs and on addresses at random."""

from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.providers.egress import (
    BLOCKED_TEXT,
    Blocked,
    BlockedAddress,
    EgressGuard,
    IPAddress,
    OwnAddress,
    Rules,
    Target,
    check_address,
    check_url,
    parse_networks,
    parse_own,
    parse_ports,
)
from tests.support.ssrf_corpus import CORPUS, Case

LOOPBACK = Rules(
    allow_http=True,
    allow_networks=parse_networks(["127.0.0.0/8", "::1/128"]),
    allow_ports=parse_ports(["1024-65535"]),
)


def answering(*answers: IPAddress) -> Callable[[str, int], Awaitable[list[IPAddress]]]:
    async def resolve(_host: str, _port: int) -> list[IPAddress]:
        return list(answers)

    return resolve


async def verdict(guard: EgressGuard, url: str) -> bool:
    target = await guard.check(url)
    if isinstance(target, Blocked):
        assert target.error == BLOCKED_TEXT
        return False
    if target.address is not None:
        return True
    try:
        await guard.addresses(target.host, target.port)
    except BlockedAddress:
        return False
    return True


def test_the_corpus_is_large_and_without_repeats() -> None:
    assert len(CORPUS) >= 150
    assert len({(case.url, case.answers) for case in CORPUS}) == len(CORPUS)
    assert sum(case.allowed for case in CORPUS) >= 40


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: ascii(case.url)[:60])
async def test_corpus(case: Case) -> None:
    assert await verdict(EgressGuard(Rules(), answering(*case.answers)), case.url) is case.allowed


def test_a_target_has_one_spelling() -> None:
    assert check_url("HTTPS://Bücher.Example:443/A?b#c", Rules()) == Target(
        "https://xn--bcher-kva.example/A?b", "xn--bcher-kva.example", 443, None
    )
    assert check_url("https://[2606:4700:0:0::1111]:8443", Rules()) == Target(
        "https://[2606:4700::1111]:8443/", "2606:4700::1111", 8443, IPv6Address("2606:4700::1111")
    )
    assert check_url("https://a.example?q", Rules()) == Target("https://a.example/?q", "a.example", 443, None)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/", "http://127.255.0.1:1024/", "https://[::1]:65535/"])
def test_what_the_operator_opened_is_open(url: str) -> None:
    assert isinstance(check_url(url, LOOPBACK), Target)
    assert isinstance(check_url(url, Rules()), Blocked)


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:9000/",
        "http://127.1:9000/",
        "http://2130706433:9000/",
        "http://[::ffff:127.0.0.1]:9000/",
        "http://[::127.0.0.1]:9000/",
        "http://127.0.0.1:22/",
        "http://localhost:9000/",
    ],
)
def test_nothing_more_is_open(url: str) -> None:
    assert isinstance(check_url(url, LOOPBACK), Blocked)


def test_every_blocked_answer_reads_the_same() -> None:
    assert str(BlockedAddress()) == Blocked().error == BLOCKED_TEXT


async def test_an_allowed_name_still_needs_an_allowed_address() -> None:
    rules = Rules(allow_http=True, allow_hosts=frozenset({"receiver"}), allow_networks=parse_networks(["10.0.0.0/8"]))
    assert await verdict(EgressGuard(rules, answering(ip_address("10.0.0.7"))), "http://receiver/")
    assert not await verdict(EgressGuard(rules, answering(ip_address("192.168.0.7"))), "http://receiver/")
    assert not await verdict(EgressGuard(rules, answering(ip_address("10.0.0.7"))), "http://sender/")


async def test_our_own_places_stay_shut() -> None:
    async def resolve(host: str, _port: int) -> list[IPAddress]:
        return [ip_address({"db.ours.example": "93.184.216.34", "evil.example": "93.184.216.34"}[host])]

    own = parse_own(["db.ours.example:5432", "1.1.1.1", "[2606:4700::1111]:443", "127.0.0.1:8080"])
    ports = parse_ports(["1024-65535"])
    guard = EgressGuard(Rules(allow_ports=ports, own=own, allow_networks=parse_networks(["127.0.0.0/8"])), resolve)
    assert not await verdict(guard, "https://db.ours.example:5432/")
    assert not await verdict(guard, "https://evil.example:5432/")
    assert not await verdict(guard, "https://93.184.216.34:5432/")
    assert await verdict(guard, "https://evil.example/")
    assert not await verdict(guard, "https://1.1.1.1/")
    assert not await verdict(guard, "https://[2606:4700::1111]/")
    assert not await verdict(guard, "https://127.0.0.1:8080/")
    assert await verdict(guard, "https://127.0.0.1:8081/")


async def test_a_listener_on_every_interface_is_ours_on_each_of_them() -> None:
    own = parse_own(["0.0.0.0:8080"])
    assert own == (OwnAddress("0.0.0.0", 8080),)  # noqa: S104 - recognised, not bound
    rules = Rules(allow_networks=parse_networks(["127.0.0.0/8"]), allow_ports=parse_ports([8080, 8081]), own=own)
    guard = EgressGuard(rules)
    assert not await verdict(guard, "https://127.0.0.1:8080/")
    assert await verdict(guard, "https://127.0.0.1:8081/")
    assert await verdict(guard, "https://93.184.216.34:8080/")


def test_places_are_read_in_every_spelling() -> None:
    assert parse_own(["::1", "[::1]", "[::1]:80", "DB,db:5432"]) == (
        OwnAddress("::1"),
        OwnAddress("::1"),
        OwnAddress("::1", 80),
        OwnAddress("db"),
        OwnAddress("db", 5432),
    )


@pytest.mark.parametrize("ports", ["22", "1023", "1024-65536", "9000-8000", "x", ""])
def test_low_and_nonsensical_ports_cannot_be_opened(ports: str) -> None:
    with pytest.raises(ValueError):
        parse_ports([ports])


@given(st.ip_addresses(v=4))
def test_ipv4_in_disguise_is_never_public(address: IPv4Address) -> None:
    number = int(address)
    for disguised in (
        IPv6Address(number),
        IPv6Address(0xFFFF << 32 | number),
        IPv6Address((0x64FF9B << 96) | number),
        IPv6Address((0x2002 << 112) | number << 80 | 1),
        IPv6Address((0x20010000 << 96) | (number ^ 0xFFFFFFFF)),
    ):
        assert not check_address(disguised)


@given(st.ip_addresses(v=4))
def test_what_python_calls_private_is_denied_too(address: IPv4Address) -> None:
    if address.is_private or address.is_multicast or address.is_reserved or address.is_link_local:
        assert not check_address(address)


@given(st.text(max_size=60))
def test_any_text_gets_a_verdict(text: str) -> None:
    for url in (text, f"https://{text}", f"https://a.example/{text}"):
        found = check_url(url, Rules())
        if isinstance(found, Target):
            assert found.url.isascii()
            assert found.url.isprintable()
            assert check_url(found.url, Rules()) == found
