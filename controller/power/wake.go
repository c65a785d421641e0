package power

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/sched/sleep"
)

// Waker wakes machines without anything else of ours. Where kubenergy-power runs it may send them to sleep again.
type Waker struct {
	Client   kubernetes.Interface
	Switches map[string]Switch
	Clock    func() time.Time
	Say      func(node, what string)
	Pause    time.Duration // between two looks
}

// Wake wakes the machine of one node, or where none is named all that sleep, until ctx ends, and takes our taint and
// labels off their nodes.
func (w *Waker) Wake(ctx context.Context, name string) error {
	for {
		left, err := w.pass(ctx, name)
		if err == nil && left == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, left)
		case <-time.After(w.Pause):
		}
	}
}

// pass takes each node one step further. It returns what is left to do.
func (w *Waker) pass(ctx context.Context, name string) (left, err error) {
	var nodes []v1.Node
	if name == "" {
		all, err := w.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing nodes: %w", err)
		}
		nodes = all.Items
	} else {
		n, err := w.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading node %s: %w", name, err)
		}
		nodes = []v1.Node{*n}
	}
	for i := range nodes {
		n := &nodes[i]
		f := facts{state: stateOf(n), memory: remembered(n), tainted: isTainted(n), ready: isReady(n)}
		if f.state == sleep.Awake && !f.tainted && (name == "" || f.ready) {
			continue
		}
		if err := w.wake(ctx, n, &f); err != nil {
			left = errors.Join(left, fmt.Errorf("node %s: %w", n.Name, err))
		}
	}
	return left, nil
}

var errGoesDown = errors.New("its machine is still going down")

func (w *Waker) wake(ctx context.Context, n *v1.Node, f *facts) error {
	power := w.Switches[n.Name]
	if power == nil && !f.ready {
		return errors.New("no machine is configured for it: start it by hand")
	}
	if power != nil && !f.ready {
		on, _, err := power.State(ctx)
		if on && f.state == sleep.Stopping && !f.Off.IsZero() {
			return errGoesDown // an order to start would be lost
		}
		if err != nil || !on {
			if err := power.On(ctx); err != nil {
				return err
			}
		}
	} else if f.state == sleep.Stopping && !f.Off.IsZero() && w.Clock().Sub(f.Off) < usual.stops {
		return errGoesDown
	}
	s := step{memory: f.memory, state: sleep.Awake}
	s.Since, s.Off, s.Why = w.Clock(), time.Time{}, "woken by hand"
	patch, err := s.patch(n)
	if err != nil {
		return err
	}
	if _, err := w.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	w.Say(n.Name, "woken")
	return nil
}
