package doctor

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/power"
)

// checkSleep reports the power states of machines that may sleep and conditions that prevent them from waking up.
func (d *Doctor) checkSleep(nodes []v1.Node) {
	var may, away, failed []string
	states := map[string]int{}
	for _, n := range nodes {
		if n.Labels[v1alpha1.LabelMaySleep] == "true" {
			may = append(may, n.Name)
		}
		if state := n.Labels[v1alpha1.LabelPowerState]; state != "" {
			away = append(away, n.Name)
			states[state]++
		}
		var memory struct {
			Failed int `json:"failed"`
		}
		if text := n.Annotations[v1alpha1.AnnotationPower]; text != "" &&
			(json.Unmarshal([]byte(text), &memory) != nil || memory.Failed > 0) {
			failed = append(failed, n.Name)
		}
	}
	dep := d.deployments[power.Name]
	works := dep != nil && dep.Status.ReadyReplicas > 0
	switch {
	case len(may)+len(away) == 0:
		return
	case len(away) > 0 && !works:
		d.fail("start "+power.Name+", or wake up the machines: kubenergy wake --all",
			"no %s is ready to wake up machines, but these nodes are not awake: %s", power.Name, firstOf(away))
	case dep == nil:
		d.warn("set power.enabled in the chart, or remove the label "+v1alpha1.LabelMaySleep,
			"%s may sleep, but %s is not installed: %s", humanize.Count(len(may), "node"), power.Name, firstOf(may))
	default:
		d.ok("%s may sleep: %d asleep, %d booting, %d stopping", humanize.Count(len(may), "node"),
			states[v1alpha1.PowerAsleep], states[v1alpha1.PowerBooting], states[v1alpha1.PowerStopping])
	}
	if len(failed) > 0 {
		d.warn("check the events and the management controller: kubectl describe node "+failed[0],
			"the last boot of these nodes failed: %s", firstOf(failed))
	}
}
