package status

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// NodeLabels labels nodes with the hardware that their agents report, and annotates them with the estimated power.
// Only the leader writes, and agents only report to the leader.
type NodeLabels struct {
	Client client.Client
	Node   func(name string) *v1.Node // from the cache; must not be modified
	View   func() *kube.View
	Leads  func() bool
	Log    *slog.Logger

	reported sync.Map // pending reports by node name: [*batch.Hardware]
}

const (
	// labelLook is the interval between two passes over pending reports, including retries.
	labelLook = 15 * time.Second
	// labelPace is the delay between two nodes. It limits the load of the API server after an update of all agents,
	// and keeps other requests of the controller from waiting.
	labelPace = 100 * time.Millisecond
)

// Reported stores the hardware reported by the agent of a node. It never blocks.
func (l *NodeLabels) Reported(node string, h *batch.Hardware) {
	if l != nil && l.Node(node) != nil {
		l.reported.Store(node, h)
	}
}

// Run writes pending reports until ctx is done.
func (l *NodeLabels) Run(ctx context.Context) error {
	for kube.Pause(ctx, labelLook) {
		l.reported.Range(func(node, reported any) bool {
			var err error
			daemon.Round(ctx, func() { err = l.write(ctx, node.(string), reported.(*batch.Hardware)) })
			if err != nil {
				l.Log.WarnContext(ctx, "Failed to label a node with its hardware", "node", node, "error", err)
			} else {
				l.reported.CompareAndDelete(node, reported) // unless the agent has sent a new report
			}
			return kube.Pause(ctx, labelPace)
		})
	}
	return nil
}

// write patches a node if its labels or annotations have to be changed.
func (l *NodeLabels) write(ctx context.Context, name string, h *batch.Hardware) error {
	n := l.Node(name)
	if n == nil || !l.Leads() {
		return nil
	}
	// Existing labels are not overwritten. As with everything else that makes a node trusted, the first report
	// counts, because a compromised machine may report anything. If the hardware of a machine was changed, an
	// administrator has to remove its labels.
	after := n.DeepCopy()
	var other []string
	for key, value := range hardware.Labels(h) {
		if has, ok := n.Labels[key]; !ok {
			metav1.SetMetaDataLabel(&after.ObjectMeta, key, value)
		} else if has != value {
			other = append(other, key)
		}
	}
	if len(other) > 0 {
		slices.Sort(other)
		l.Log.WarnContext(ctx, "Hardware reported by the agent differs from the labels of its node; "+
			"remove the labels if the machine was changed", "node", name, "labels", other)
	}
	delete(after.Annotations, v1alpha1.AnnotationPowerGuess)
	if guess := l.View().Guess(after); guess != "" {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationPowerGuess, guess)
	}
	if maps.Equal(after.Labels, n.Labels) && maps.Equal(after.Annotations, n.Annotations) {
		return nil
	}
	return client.IgnoreNotFound(l.Client.Patch(ctx, after, client.MergeFrom(n)))
}
