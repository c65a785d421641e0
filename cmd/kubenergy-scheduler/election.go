package main

import (
	"context"
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
}

// letFinish has the election of a leader, if there is one, wait for wait at its end.
func letFinish(election *leaderelection.LeaderElectionConfig, ended <-chan struct{}, wait func()) {
	if election != nil {
		election.Lock = &lastUpdate{Interface: election.Lock, ended: ended, wait: wait}
	}
}

// Update implements [resourcelock.Interface].
func (l *lastUpdate) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		l.finish(ctx)
	}
	return l.Interface.Update(ctx, record)
}

// finish waits for our parts unless they have not been told to end: the lease may have been lost. Half of the time
// that there is for giving it back is left for that.
func (l *lastUpdate) finish(ctx context.Context) {
	select {
	case <-l.ended:
	default:
		return
	}
	patience := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		patience = time.Until(deadline) / 2
	}
	finished := make(chan struct{})
	go func() { l.wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(patience):
	}
}
