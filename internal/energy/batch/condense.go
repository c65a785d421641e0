package batch

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Condense reduces shares, which must be sorted by ID, to at most limit elements. No energy is lost, but some of it
// is assigned to a less precise consumer. It applies only the steps that are needed:
//
//  1. Ended containers are merged into their pods, as pod/UID.
//  2. All containers are merged into their pods.
//  3. The consumers with the lowest energy are merged into [Others], ended ones first.
func Condense(shares []energy.Share, limit int) []energy.Share {
	limit = max(limit, 1)
	if len(shares) <= limit {
		return shares
	}
	shares = toPods(shares, false)
	if len(shares) > limit {
		shares = toPods(shares, true)
	}
	if len(shares) > limit {
		shares = toOthers(shares, limit)
	}
	return shares
}

// Rename merges shares under the names returned by rename and sorts the result. A merged consumer has ended if all
// of its parts have.
func Rename(shares []energy.Share, rename func(*energy.Share) string) []energy.Share {
	renamed := slices.Clone(shares)
	for i := range renamed {
		renamed[i].ID = rename(&renamed[i])
	}
	slices.SortStableFunc(renamed, func(a, b energy.Share) int { return strings.Compare(a.ID, b.ID) })
	n := 0
	for i := range renamed {
		if n > 0 && renamed[n-1].ID == renamed[i].ID {
			ended := renamed[n-1].Ended && renamed[i].Ended
			add(&renamed[n-1], &renamed[i])
			renamed[n-1].Ended = ended
			continue
		}
		renamed[n] = renamed[i]
		n++
	}
	return renamed[:n]
}

func toPods(shares []energy.Share, living bool) []energy.Share {
	alive := map[string]bool{}
	for i := range shares {
		if pod, _, ok := energy.PodOf(shares[i].ID); ok && !shares[i].Ended {
			alive[pod] = true
		}
	}
	merged := Rename(shares, func(s *energy.Share) string {
		pod, container, ok := energy.PodOf(s.ID)
		if !ok || container == "" || !living && !s.Ended {
			return s.ID
		}
		return energy.ContainerID(pod, "")
	})
	for i := range merged {
		if pod, container, ok := energy.PodOf(merged[i].ID); ok && container == "" && alive[pod] {
			merged[i].Ended = false // the pod of an ended container has not ended itself
		}
	}
	return merged
}

func toOthers(shares []energy.Share, limit int) []energy.Share {
	order := make([]*energy.Share, 0, len(shares))
	surplus := len(shares) - limit + 1 // one element is reserved for Others
	for i := range shares {
		if shares[i].ID == Others {
			surplus--
			continue
		}
		order = append(order, &shares[i])
	}
	slices.SortFunc(order, func(a, b *energy.Share) int {
		return cmp.Or(sliceutil.TrueFirst(a.Ended, b.Ended), cmp.Compare(a.Dynamic+a.Idle, b.Dynamic+b.Idle),
			strings.Compare(a.ID, b.ID))
	})
	least := make(map[string]bool, surplus)
	for _, s := range order[:min(surplus, len(order))] {
		least[s.ID] = true
	}
	return Rename(shares, func(s *energy.Share) string {
		if least[s.ID] {
			return Others
		}
		return s.ID
	})
}
