package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// countedLock counts updates.
type countedLock struct {
	resourcelock.Interface
	updates int
}

func (l *countedLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	l.updates++
	return nil
}

func TestTheLeaseIsGivenBackLast(t *testing.T) {
	for name, c := range map[string]struct {
		holder string
		ended  bool
		parts  time.Duration // time until the components stop
		want   time.Duration
	}{
		"released, components stop soon": {"", true, 2 * time.Second, 2 * time.Second},
		// half of the timeout of the election
		"released, components never stop":   {"", true, time.Hour, 5 * time.Second},
		"released after it was lost":        {"", false, 2 * time.Second, 0},
		"renewed":                           {"us", false, 2 * time.Second, 0},
		"renewed during termination":        {"us", true, 2 * time.Second, 0},
		"released, components have stopped": {"", true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lock := &countedLock{}
				election := &leaderelection.LeaderElectionConfig{Lock: lock}
				process, end := context.WithCancel(t.Context())
				defer end()
				letFinish(process, election, func() { time.Sleep(c.parts) })
				if c.ended {
					end()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				if err := election.Lock.Update(ctx,
					resourcelock.LeaderElectionRecord{HolderIdentity: c.holder}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != c.want || lock.updates != 1 {
					t.Errorf("%d updates after %v, want one after %v", lock.updates, took, c.want)
				}
				end()
				bubble.Advance(c.parts + standbyPatience) // let all goroutines of the bubble terminate
			})
		})
	}
}

func TestWithoutAnElectionNothingIsGivenBack(t *testing.T) {
	if letFinish(t.Context(), nil, nil) != t.Context() {
		t.Error("the context of kube-scheduler was replaced")
	}
}

// TestAStandbyEndsAfterOurParts verifies that the context of kube-scheduler is canceled immediately in the leader.
// In a standby, it is canceled after the hold loop has released its Lease.
func TestAStandbyEndsAfterOurParts(t *testing.T) {
	for name, c := range map[string]struct {
		leads       bool
		parts, want time.Duration
	}{
		"leads":                      {true, time.Second, 0},
		"standby":                    {false, time.Second, time.Second},
		"standby that does not stop": {false, time.Hour, standbyPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				election := &leaderelection.LeaderElectionConfig{Lock: &countedLock{}}
				process, end := context.WithCancel(t.Context())
				running := letFinish(process, election, func() { time.Sleep(c.parts) })
				if c.leads {
					if err := election.Lock.Update(process,
						resourcelock.LeaderElectionRecord{HolderIdentity: "us"}); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				end()
				<-running.Done()
				if took := time.Since(began); took != c.want {
					t.Errorf("kube-scheduler stops after %v, want %v", took, c.want)
				}
				bubble.Advance(c.parts) // let all goroutines of the bubble terminate
			})
		})
	}
}
