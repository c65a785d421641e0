// Package install tests the Helm chart with a real API server. It verifies that helm can install and uninstall the
// chart, that all rendered objects and examples pass strict validation, that the admission policy suspends the
// expected Jobs and that the service accounts have exactly the required permissions.
package install
