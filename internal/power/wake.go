package power

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// Waker wakes machines without the other components. A running kubenergy-power may put them to sleep again.
type Waker struct {
	Client   kubernetes.Interface
	Switches map[string]Switch
	Clock    func() time.Time
	Say      func(node, what string)
	Pause    time.Duration // between two passes
	Limit    *rate.Limiter // rate of wake orders
}

// Wake wakes the machine of one node, or all sleeping machines if name is empty, and removes our taint and labels
// from their nodes. It returns when all of them are awake or ctx is done.
func (w *Waker) Wake(ctx context.Context, name string) error {
	var last error
	for {
		left, err := w.pass(ctx, name)
		if err == nil {
			last = left
		}
		if cmp.Or(left, err) == nil || errors.Is(err, errNoNode) || !kube.Pause(ctx, w.Pause) {
			return cmp.Or(last, err)
		}
	}
}

var errNoNode = errors.New("no such node")

// pass advances each node by one step. It returns the remaining work as left.
func (w *Waker) pass(ctx context.Context, name string) (left, err error) {
	all, err := w.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	found := name == ""
	var mu sync.Mutex
	var work errgroup.Group
	work.SetLimit(abreast) // some management controllers respond slowly
	for i := range all.Items {
		n := &all.Items[i]
		found = found || n.Name == name
		if name != "" && n.Name != name ||
			kube.PowerState(n) == sleep.Awake && !isTainted(n) && (name == "" || isReady(n)) {
			continue
		}
		work.Go(func() error {
			err := w.wake(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				left = errors.Join(left, fmt.Errorf("node %s: %w", n.Name, err))
			} else {
				w.Say(n.Name, "woken")
			}
			return nil
		})
	}
	_ = work.Wait() // errors are in left
	if !found {
		return nil, fmt.Errorf("%w %s", errNoNode, name)
	}
	return left, nil
}

// wake powers a machine on, and removes our labels and taint from its node once it is on.
func (w *Waker) wake(ctx context.Context, n *v1.Node) error {
	s := step{memory: remembered(n, w.Clock()), state: sleep.Awake}
	if err := w.start(ctx, n, kube.PowerState(n) == sleep.Stopping && w.Clock().Sub(s.Off) < usual.stops); err != nil {
		return err
	}
	s.Since, s.Off, s.Why = w.Clock(), time.Time{}, "woken manually"
	_, err := s.write(ctx, w.Client, n)
	return err
}

func (w *Waker) start(ctx context.Context, n *v1.Node, goesDown bool) error {
	power := w.Switches[n.Name]
	if isReady(n) && !goesDown {
		return nil
	}
	if power == nil {
		return errors.New("no machine is configured for it: start it manually")
	}
	on, _, err := power.State(ctx)
	switch {
	case goesDown && (on || err != nil):
		return errors.New("its machine is still shutting down") // a wake order would be ignored
	case on && err == nil:
		return nil
	}
	if err := w.Limit.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the limit of wake orders: %w", err)
	}
	if ordered := power.On(ctx); ordered != nil || err != nil { // an order suffices if the state is unknown
		return ordered
	}
	return errors.New("its machine was ordered to start but is not on yet")
}

// WakeLimit returns the rate limiter of wake orders for a policy, evenly distributed.
func WakeLimit(p *sleep.Policy) *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/time.Duration(p.MaxWakes())), 1) // Every(0) means no limit
}
