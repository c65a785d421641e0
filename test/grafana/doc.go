// Package grafana generates the dashboards of the chart from tables and tests them and the alerts with a real
// Prometheus.
package grafana
