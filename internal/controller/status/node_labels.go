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

// NodeLabels write on nodes what their agents tell of their hardware, and what the nodes are guessed to draw. The
// replica that leads writes; it is also the one that agents talk to.
type NodeLabels struct {
	Client client.Client
	Node   func(name string) *v1.Node // of the cache: read only
	View   func() *kube.View
	Leads  func() bool
	Log    *slog.Logger

	reported sync.Map // that is not written yet: by node, its [*batch.Hardware]
}

const (
	// Between two looks at what was told. What could not be written is tried again as soon.
	labelLook = 15 * time.Second
	// Between two nodes: an update of our agents must not keep the API server busy, and others of our requests wait.
	labelPace = 100 * time.Millisecond
)

// Reported notes what the agent of a node tells. It never waits.
func (l *NodeLabels) Reported(node string, h *batch.Hardware) {
	if l != nil && l.Node(node) != nil {
		l.reported.Store(node, h)
	}
}

// Run writes what is told until ctx ends.
func (l *NodeLabels) Run(ctx context.Context) error {
	for kube.Pause(ctx, labelLook) {
		l.reported.Range(func(node, reported any) bool {
			var err error
			daemon.Round(ctx, func() { err = l.write(ctx, node.(string), reported.(*batch.Hardware)) })
			if err != nil {
				l.Log.WarnContext(ctx, "Labelling a node with its hardware", "node", node, "error", err)
			} else {
				l.reported.CompareAndDelete(node, reported) // unless the agent has told something since
			}
			return kube.Pause(ctx, labelPace)
		})
	}
	return nil
}

// write patches a node, if anything of it is to be changed.
func (l *NodeLabels) write(ctx context.Context, name string, h *batch.Hardware) error {
	n := l.Node(name)
	if n == nil || !l.Leads() {
		return nil
	}
	// What was told at first holds, as with all that makes a node believed: a machine that is broken into says what it
	// likes. An administrator takes labels off whose machine was changed.
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
		l.Log.WarnContext(ctx, "An agent tells of other hardware than its node's labels: if the machine was changed, "+
			"take the labels off", "node", name, "labels", other)
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
