package power

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/controller/estimate"
	"github.com/kubenergy/kubenergy/internal/controller/release"
	"github.com/kubenergy/kubenergy/internal/kube"
)

func TestMetrics(t *testing.T) {
	w, r := one(t, 3)
	w.live(t, r, 40*time.Second)
	leads := false
	m := &estimate.NodePower{
		Leads: func() bool { return leads }, Held: release.NewHeld(), View: kube.Unsettled,
		Nodes: func(context.Context) (all []v1.Node, err error) {
			for _, n := range w.nodes {
				all = append(all, *n)
			}
			return all, nil
		},
		Pods: func(context.Context, string) ([]v1.Pod, error) { return nil, nil },
	}
	if n := testutil.CollectAndCount(m); n != 0 {
		t.Errorf("%d series of a replica that is not the leader", n)
	}
	leads = true
	if err := testutil.CollectAndCompare(m, strings.NewReader(`
		# HELP kubenergy_power_machines Number of machines that may sleep, by power state.
		# TYPE kubenergy_power_machines gauge
		kubenergy_power_machines{state="asleep"} 0
		kubenergy_power_machines{state="awake"} 0
		kubenergy_power_machines{state="booting"} 0
		kubenergy_power_machines{state="stopping"} 3
	`), "kubenergy_power_machines"); err != nil {
		t.Error(err)
	}
}
