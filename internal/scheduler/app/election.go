package app

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lastUpdate is the lock of an election that is given back only when our parts have stopped: kube-scheduler ends the
// process right after it, and what was decided last would go unrecorded.
type lastUpdate struct {
	resourcelock.Interface

	ended <-chan struct{} // the process is told to end
	wait  func()
	leads atomic.Bool
}

// standbyPatience is how long a process that does not lead waits for our parts at its end.
const standbyPatience = 10 * time.Second

// letFinish has the election of a leader, if there is one, wait for wait at its end. It returns the context to run
// kube-scheduler with. A process that does not lead ends as soon as that context does, and with it the hold loop, which
// may lead and must release its own Lease: so that context ends after wait, or standbyPatience.
func letFinish(ctx context.Context, election *leaderelection.LeaderElectionConfig, wait func()) context.Context {
	if election == nil {
		return ctx
	}
	lock := &lastUpdate{Interface: election.Lock, ended: ctx.Done(), wait: wait}
	election.Lock = lock
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		if !lock.leads.Load() {
			lock.await(standbyPatience)
		}
		stop()
	})
	return running
}

// Create implements [resourcelock.Interface].
func (l *lastUpdate) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.leads.Store(err == nil)
	return err
}

// Update implements [resourcelock.Interface].
func (l *lastUpdate) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		l.finish(ctx)
	}
	err := l.Interface.Update(ctx, record)
	l.leads.Store(err == nil && record.HolderIdentity != "")
	return err
}

// finish waits for our parts unless they have not been told to end: the lease may have been lost. Half of the time
// that there is for giving it back is left for that.
func (l *lastUpdate) finish(ctx context.Context) {
	select {
	case <-l.ended:
	default:
		return
	}
	timeout := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline) / 2
	}
	l.await(timeout)
}

// await waits for our parts, but not for longer than timeout.
func (l *lastUpdate) await(timeout time.Duration) {
	finished := make(chan struct{})
	go func() { l.wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(timeout):
	}
}
