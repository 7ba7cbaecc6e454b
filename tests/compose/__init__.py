"""Images and services of docker-compose.yml."""
