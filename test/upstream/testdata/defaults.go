package v1

import (
	"k8s.io/klog/v2"
	v1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// mergePlugins returns the merged plugins of a profile and the defaults, followed by the KubEnergy plugins.
func mergePlugins(logger klog.Logger, defaultPlugins, customPlugins *v1.Plugins) *v1.Plugins {
	plugins := stockMergePlugins(logger, defaultPlugins, customPlugins)
	plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, enabled.Everywhere()...)
	return plugins
}
