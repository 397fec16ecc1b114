"""The one outbound HTTP client: one request, one deadline, one value back."""


class HttpClient:
    """Opens nothing until the first request; whoever made it closes it."""

    async def aclose(self) -> None:
        """Give connections back."""
