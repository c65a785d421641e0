package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

const (
	statePrefix = "power/" // followed by the namespace
	storeEvery  = 5 * time.Minute
	retryEvery  = 5 * time.Second // until the statistics are restored
	storeWithin = 30 * time.Second
)

// storedOwner is an owner in the state of its namespace.
type storedOwner struct {
	Kind       string                     `json:"kind"`
	Name       string                     `json:"name"`
	Power      energy.Smoothed            `json:"power"`
	Containers map[string]energy.Smoothed `json:"containers,omitempty"`
}

// Keep restores the statistics of owners once, and stores changed ones every few minutes and when ctx is done, so that
// a restart does not lose them. It does nothing while leads returns false, because only the leader
// receives batches.
func (s *State) Keep(ctx context.Context, states ledger.StateStore, leads func() bool, log *slog.Logger) {
	var stored time.Time // statistics that were updated later have not been stored
	restored, failed := false, false
	for wait := retryEvery; kube.Pause(ctx, wait); {
		if !leads() {
			continue
		}
		var err error
		if !restored {
			restored, err = s.restore(ctx, states)
		} else {
			stored, err = s.store(ctx, states, stored)
		}
		if err != nil && !failed && ctx.Err() == nil {
			log.WarnContext(ctx, "Failed to restore or store the power of owners", "error", err)
		}
		if failed = err != nil; restored {
			wait = storeEvery
		}
	}
	if restored {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWithin)
		defer cancel()
		if _, err := s.store(ctx, states, stored); err != nil {
			log.WarnContext(ctx, "Failed to store the power of owners", "error", err)
		}
	}
}

// restore adds the stored owners. It replaces those with fewer samples, which have been seen since the start. It
// returns false if it must be repeated.
func (s *State) restore(ctx context.Context, states ledger.StateStore) (restored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	all, err := states.States(ctx, statePrefix)
	if err != nil && len(all) == 0 {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, text := range all {
		var owners []storedOwner
		if damaged := json.Unmarshal(text, &owners); damaged != nil {
			err = errors.Join(err, fmt.Errorf("state %q: %w", name, damaged))
			continue
		}
		for _, stored := range owners {
			key := ownerKey{name[len(statePrefix):], stored.Kind, stored.Name}
			o := s.ownerOf(key)
			if o.power.Samples() >= stored.Power.Samples() {
				continue
			}
			o.power = stored.Power
			for container, power := range stored.Containers {
				if p := o.part(container); p != nil {
					p.power = power
				}
			}
		}
	}
	return true, err
}

// store stores the namespaces with owners that were updated at the given time or later. It returns the time for the
// next call.
func (s *State) store(ctx context.Context, states ledger.StateStore, since time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	next := s.o.Now().Add(-maxAge) // later batches may still contain this time
	var errs []error
	for namespace, owners := range s.changed(since) {
		payload, err := json.Marshal(owners)
		for err == nil && len(payload) > ledger.MaxState { // keep the owners that were updated last
			owners = owners[:len(owners)/2]
			payload, err = json.Marshal(owners)
		}
		if err == nil {
			err = states.SaveState(ctx, statePrefix+namespace, payload)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return since, err
	}
	return next, nil
}

// changed returns the owners of the namespaces with an owner that was updated at the given time or later, the last
// updated ones first.
func (s *State) changed(since time.Time) map[string][]storedOwner {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all, recent := map[string][]storedOwner{}, map[string]bool{}
	for key, o := range s.owners {
		stored := storedOwner{Kind: key.kind, Name: key.name, Power: o.power, Containers: map[string]energy.Smoothed{}}
		for _, p := range o.parts {
			stored.Containers[p.name] = p.power
		}
		all[key.namespace] = append(all[key.namespace], stored)
		recent[key.namespace] = recent[key.namespace] || !o.power.At().Before(since)
	}
	for namespace, owners := range all {
		if !recent[namespace] {
			delete(all, namespace)
		}
		slices.SortFunc(owners, func(a, b storedOwner) int { return b.Power.At().Compare(a.Power.At()) })
	}
	return all
}
