"""Exit with 0 if the dashboard of this container answers and reaches its database."""

import http.client
import os
import sys


def main() -> int:
    """Request /healthz; return the exit status."""
    # Not urllib, which would use a proxy from the environment.
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["UVICORN_PORT"]), timeout=4)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        answer = response.read(1000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"no answer: {error!r}\n")
        return 1
    sys.stdout.write(f"{response.status} {answer}\n")
    return 0 if response.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
