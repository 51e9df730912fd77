"""What people look at: dashboards, and a local set of services to look at them with."""
