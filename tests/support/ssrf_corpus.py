"""URLs a stranger may hand us, each with the verdict it must get."""

# ruff: noqa: RUF001, S104 - look-alike letters and the wildcard address are what is being tested

from dataclasses import dataclass
from ipaddress import ip_address

from carillon.providers.egress import IPAddress


@dataclass(frozen=True)
class Case:
    """`answers` is what DNS says for the URL's name; a literal address is never looked up."""

    url: str
    allowed: bool
    answers: tuple[IPAddress, ...] = ()


def _literal(host: str, *, allowed: bool = False) -> Case:
    return Case(f"https://{host}/hook", allowed)


def _named(*answers: str, allowed: bool = False, url: str = "https://hooks.customer.example/in") -> Case:
    return Case(url, allowed, tuple(map(ip_address, answers)))


_PUBLIC = ("93.184.216.34",)

_PUBLIC_V4 = (
    *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.216.34", "100.63.255.255", "100.128.0.0"),
    *("126.255.255.255", "128.0.0.1", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0"),
    *("172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0"),
    *("198.17.255.255", "198.20.0.0", "198.51.99.255", "203.0.112.255", "203.0.114.0", "223.255.255.255"),
)
_PRIVATE_V4 = (
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255"),
    *("127.0.0.1", "127.1.2.3", "127.255.255.254", "168.63.129.16", "169.254.0.1", "169.254.169.254"),
    *("169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.31.196.1"),
    *("192.52.193.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "192.175.48.1", "198.18.0.1"),
    *("198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1"),
    *("254.254.254.254", "255.255.255.255"),
)
_PUBLIC_V6 = (
    *("[2606:4700:4700::1111]", "[2001:4860:4860::8888]", "[2a00:1450:4001:81b::200e]", "[2001:200::1]"),
    *("[2003::1]", "[3ffe:ffff::1]", "[3fff:1000::1]"),
)
_PRIVATE_V6 = (
    *("[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::127.0.0.1]", "[::10.0.0.1]", "[::8.8.8.8]"),
    *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::FFFF:169.254.169.254]", "[::ffff:8.8.8.8]", "[::ffff:0:127.0.0.1]"),
    *("[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::10.0.0.1]", "[100::1]", "[1fff::1]"),
    *("[2001::1]", "[2001:0:53aa:64c:0:fbff:fffe:fffe]", "[2001:10::1]", "[2001:20::1]", "[2001:1ff::1]"),
    *("[2001:db8::1]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[2002:808:808::1]", "[3fff::1]"),
    *("[3fff:fff:ffff::1]", "[4000::1]", "[5f00::1]", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[feb0::1]"),
    *("[fec0::1]", "[ff02::1]", "[ff0e::1]"),
)
_ODD_SPELLINGS = (
    *("2130706433", "017700000001", "0x7f000001", "0x7F.0.0.1", "0x7f.1", "127.1", "127.0.1", "0177.0.0.1"),
    *("0177.0.0.01", "127.0.0.01", "00127.0.0.1", "127.0.0.1.", "127.0.0.0x1", "127.0.0.256", "1.2.3.4.5", "0"),
    *("0.0", "0x0", "3232235521", "0xA9FEA9FE", "2852039166", "169.254.43518", "0251.0376.0251.0376", "8.8.8.08"),
    *("0x", "127.0.0.0x", "example.0x7f", "256.256.256.256", "-1", "1e9", "[127.0.0.1]", "[::1", "::1", "[::1%25lo]"),
    *("[fe80::1%eth0]", "[::1]x", "[]", "[:::1]", "[::1]:0443x", "[v1.fe80::a+en1]"),
)
_NAMES = (
    *("localhost", "LOCALHOST", "Localhost.", "localhost.", "a.localhost", "localhost.localdomain.local"),
    *("printer.local", "metadata.google.internal", "db.internal", "internal", "local", "router.home.arpa"),
    *("home.arpa", "intranet", "redis", "kubernetes", "hooks.example.", "hooks..example", ".hooks.example"),
    *("hooks.example..", "-hooks.example", "hooks-.example", "ho_oks.example", "ho oks.example", "hooks!.example"),
    *("ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "ｌｏｃａｌｈｏｓｔ", "１２７.０.０.１", "127。0。0。1", "①②⑦.⓪.⓪.①", "xn--.example"),
    *(
        "xn--a.example",
        "hooks.exa\u200bmple\u2028.test",
        "hooks%2eexample.com",
        "%6cocalhost",
        "127.0.0.1%00.example.com",
    ),
    *(f"{'a' * 64}.example", f"{'a.' * 127}example"),
)
_SHAPES = (
    *("", "hooks.customer.example", "//hooks.customer.example/", "https:/hooks.customer.example/"),
    *("https:hooks.customer.example", "https://", "https:///hook", "https://?x", "https://#x", "https://:443/"),
    *("http://hooks.customer.example/", "HTTP://hooks.customer.example/", "ftp://hooks.customer.example/"),
    *(
        "file:///etc/passwd",
        "gopher://hooks.customer.example/",
        "dict://127.0.0.1:6379/",
        "ws://hooks.customer.example/",
    ),
    *(
        "unix:///var/run/docker.sock",
        "javascript:alert(1)",
        "data:text/plain,x",
        "jar:https://hooks.customer.example!/",
    ),
    *("https://user@hooks.customer.example/", "https://user:word@hooks.customer.example/"),
    *("https://hooks.customer.example@127.0.0.1/", "https://127.0.0.1@hooks.customer.example/"),
    *("https://127.0.0.1\\@hooks.customer.example/", "https://hooks.customer.example\\@127.0.0.1/"),
    *("https://hooks.customer.example#@127.0.0.1/\\", "https://hooks.customer.example\\.internal/"),
    *("https://hooks.customer.example:/", "https://hooks.customer.example:0/", "https://hooks.customer.example:22/"),
    *("https://hooks.customer.example:25/", "https://hooks.customer.example:6379/"),
    *(
        "https://hooks.customer.example:65536/",
        "https://hooks.customer.example:-1/",
        "https://hooks.customer.example:4 43/",
    ),
    *(
        "https://hooks.customer.example:0x1bb/",
        "https://hooks.customer.example:443:80/",
        "https://hooks.customer.example:٤٤٣/",
    ),
    *(
        "https://hooks.customer.example/a b",
        "https://hooks.customer.example/\r\nX-Evil: 1",
        "https://hooks.customer.example/\x00",
    ),
    *(
        "https://hooks.customer.example/\u2028",
        "https://hooks.customer.example/caf\u00e9",
        " https://hooks.customer.example/",
    ),
    *("https://hooks.customer.example/ ", "\thttps://hooks.customer.example/", "https://hooks.\ncustomer.example/"),
    *("https://hooks.\tcustomer.example/", "https://hooks.customer.example\x00.evil.test/"),
    "https://hooks.customer.example/" + "a" * 2048,
)
_GOOD_SHAPES = (
    *("https://hooks.customer.example", "https://hooks.customer.example/", "HTTPS://Hooks.Customer.Example/In"),
    *("https://hooks.customer.example?x=1", "https://hooks.customer.example/a/b?c=d&e=%20f", "https://a.co/#part"),
    *(
        "https://hooks.customer.example:443/",
        "https://hooks.customer.example:8443/",
        "https://hooks.customer.example:80/",
    ),
    *(
        "https://bücher.example/",
        "https://xn--bcher-kva.example/",
        "https://点看.example/",
        "https://r3---sn-4g5e.example/",
    ),
    *(
        "https://localhost.example/",
        "https://127.0.0.1.nip.example/",
        "https://internal.example/",
        "https://0x7f.example/",
    ),
    *("https://hooks.customer.example/%0d%0a", "https://hooks.customer.example/http://127.0.0.1/"),
)
_ANSWERS = (
    _named("93.184.216.34", allowed=True),
    _named("93.184.216.34", "2606:4700:4700::1111", allowed=True),
    _named("127.0.0.1"),
    _named("::1"),
    _named("10.1.2.3"),
    _named("169.254.169.254"),
    _named("::ffff:169.254.169.254"),
    _named("64:ff9b::7f00:1"),
    _named("0.0.0.0"),
    _named("fd00:ec2::254"),
    # One forbidden address condemns the whole answer.
    _named("93.184.216.34", "127.0.0.1"),
    _named("127.0.0.1", "93.184.216.34"),
    _named("93.184.216.34", "::1"),
    _named("93.184.216.34", "1.1.1.1", "8.8.8.8", "192.168.1.1"),
    _named(),
    _named("127.0.0.1", url="https://127.0.0.1.nip.example/"),
)

CORPUS: tuple[Case, ...] = (
    *(_literal(host, allowed=True) for host in (*_PUBLIC_V4, *_PUBLIC_V6)),
    *(_literal(host) for host in (*_PRIVATE_V4, *_PRIVATE_V6)),
    # A willing resolver: these have to be refused for what they are.
    *(_named(*_PUBLIC, url=f"https://{host}/hook") for host in (*_ODD_SPELLINGS, *_NAMES)),
    *(_named(*_PUBLIC, url=url) for url in _SHAPES),
    *(_named(*_PUBLIC, url=url, allowed=True) for url in _GOOD_SHAPES),
    *_ANSWERS,
)
