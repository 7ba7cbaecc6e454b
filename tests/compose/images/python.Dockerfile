# Stands in for the official image of Python, with Debian's.
FROM debian:trixie-minbase
RUN apt-get -q update \
    && apt-get -q install -y --no-install-recommends ca-certificates python3-pip python3-venv \
    && update-ca-certificates \
    && ln -s /usr/bin/python3 /usr/local/bin/python \
    && rm -rf /var/lib/apt/lists/*
CMD ["python"]
