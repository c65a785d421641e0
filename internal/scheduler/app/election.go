package app

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lastUpdate is an election lock that is not released until the components of this process have stopped.
// kube-scheduler exits immediately after releasing the lock, so the last decisions would otherwise not be recorded.
type lastUpdate struct {
	resourcelock.Interface

	ended <-chan struct{} // closed when the process receives a termination signal
	wait  func()
	leads atomic.Bool
}

// standbyPatience is the max time that a standby waits for its components when it terminates.
const standbyPatience = 10 * time.Second

// letFinish makes the leader election, if there is one, call wait before it releases the lock. It returns the
// context for kube-scheduler. A standby exits as soon as that context is done. Since its hold loop may be the
// leader of another Lease, which it must release, the context of a standby is not canceled until wait has returned
// or standbyPatience has passed.
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

// finish waits for the components if the process is terminating. It does not wait if the lease was lost. It uses at
// most half of the time that remains for releasing the lock.
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

// await waits for the components for at most timeout.
func (l *lastUpdate) await(timeout time.Duration) {
	finished := make(chan struct{})
	go func() { l.wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(timeout):
	}
}
