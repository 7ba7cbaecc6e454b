# Stands in for the official image of PostgreSQL, with Debian's server.
FROM debian:trixie-minbase
RUN mkdir -p /etc/postgresql-common \
    && echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
    && apt-get -q update \
    && apt-get -q install -y --no-install-recommends gosu postgresql-17 \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/usr/lib/postgresql/17/bin:$PATH \
    PGDATA=/var/lib/postgresql/data
RUN mkdir -p "$PGDATA" && chown postgres:postgres "$PGDATA"
VOLUME /var/lib/postgresql/data
COPY postgres-entrypoint.sh /usr/local/bin/
STOPSIGNAL SIGINT
EXPOSE 5432
ENTRYPOINT ["bash", "/usr/local/bin/postgres-entrypoint.sh"]
CMD ["postgres"]
