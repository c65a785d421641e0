// Package grafana makes the dashboards of the chart from tables, and holds them and the alerts to a real Prometheus.
package grafana
