package slurm

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
)

// accounts know whom the steps of jobs are charged to, by the control groups that slurmstepd makes for them: version 1
// as /slurm/uid_1000/job_7/step_0, version 2 as /system.slice/slurmstepd.scope/job_7/step_0. Any number of goroutines
// may ask.
type accounts struct {
	mu sync.RWMutex
	of map[int64]charged
}

// charged is what is known of a job that runs, or has run.
type charged struct {
	account ledger.Account
	hosts   string
	seen    time.Time
}

// stepGroup is the part of a path that slurmstepd makes.
var stepGroup = regexp.MustCompile(`/job_(\d+)/step_(\w+)`)

// remembered is for how long a job counts that slurmctld has forgotten: an agent may deliver late. Later, its energy is
// booked under the control group.
const remembered = 48 * time.Hour

func (a *accounts) saw(jobs []Job, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range jobs {
		j := &jobs[i]
		if j.Hosts == "" {
			continue // it has not begun
		}
		a.of[int64(j.ID)] = charged{ledger.Account{
			Kind: ledger.Workload, Namespace: namespaceOf(j.Account), OwnerKind: "Job", Owner: j.name(),
			Parent: "Partition/" + j.partition(), Team: j.User,
		}, j.Hosts, now}
	}
	for id, c := range a.of {
		if now.Sub(c.seen) > remembered {
			delete(a.of, id)
		}
	}
}

// Account returns the step that a control group of a node is, and whom it is charged to; false: it is none, or of a job
// that does not run there.
func (d *Driver) Account(node, path string) (step string, a ledger.Account, ok bool) {
	m := stepGroup.FindStringSubmatch(path)
	if m == nil {
		return "", a, false
	}
	id, _ := strconv.ParseInt(m[1], 10, 64)
	d.accounts.mu.RLock()
	defer d.accounts.mu.RUnlock()
	c, ok := d.accounts.of[id]
	if !ok || !lists(c.hosts, node) {
		return "", a, false
	}
	return c.account.Owner + "." + m[2], c.account, true
}

// lists reports whether a list of hosts, as n[1-3,07],login, has a node.
func lists(hosts, node string) bool {
	depth := 0
	for pattern := range strings.FieldsFuncSeq(hosts, func(r rune) bool {
		depth += strings.Count("[", string(r)) - strings.Count("]", string(r))
		return r == ',' && depth == 0
	}) {
		if matches(pattern, node) {
			return true
		}
	}
	return false
}

func matches(pattern, node string) bool {
	before, rest, ranged := strings.Cut(pattern, "[")
	node, ok := strings.CutPrefix(node, before)
	if !ok || !ranged {
		return ok && node == ""
	}
	ranges, rest, _ := strings.Cut(rest, "]")
	digits := node[:len(node)-len(strings.TrimLeft(node, "0123456789"))]
	return matches(rest, node[len(digits):]) && slices.ContainsFunc(strings.Split(ranges, ","), func(part string) bool {
		first, last, _ := strings.Cut(part, "-")
		return within(digits, first, cmp.Or(last, first))
	})
}

// within reports whether a number lies between two others, and has as many digits as the first where one is padded.
func within(digits, first, last string) bool {
	n, err := strconv.Atoi(digits)
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	padded := func(s string) bool { return strings.HasPrefix(s, "0") && len(s) > 1 }
	return errors.Join(err, errFrom, errTo) == nil && from <= n && n <= to &&
		(!padded(first) && !padded(digits) || len(digits) == len(first))
}
