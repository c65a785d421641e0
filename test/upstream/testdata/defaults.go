package v1

import (
	v1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// getDefaultPlugins returns what stock enables by default, and ours after it, as where a profile names ours.
func getDefaultPlugins() *v1.Plugins {
	plugins := stockDefaultPlugins()
	plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, enabled.ByDefault()...)
	return plugins
}
