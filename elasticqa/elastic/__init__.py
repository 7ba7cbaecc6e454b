"""Elastic training: agents, health checks, failures and shutdown.

- A node starts or joins a job: `preflight` compares it with the others, `torchrun` runs its agent, `agent` joins the
  rendezvous and starts the workers.
- A rank dies, stops or fails: `agent` records how its worker ended and restarts the worker group. On the other ranks,
  `health_check` detects it, `failure_detector` decides on the cause, `shutdown` records it and ends the process.
- A job is asked to stop: `signals`. Who ended an attempt and why: `end_causes`. The store's node dies: `store_monitor`.
"""
