"""Five Grafana dashboards and the services to look at them with: files, no code."""
